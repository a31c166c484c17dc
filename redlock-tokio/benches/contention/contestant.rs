use crate::{Result, access::Access};

/// Something that acquires and releases a lock over Redis nodes.
pub(crate) trait Contestant: Clone + Send + Sync + Sized + 'static {
    /// The state between an acquisition and its release.
    type Held: Send + 'static;

    /// Connects to the nodes at these URLs.
    fn connect(urls: &[String]) -> impl Future<Output = Result<Self>> + Send;

    /// Sets what to acquire, for those that know more than a lock.
    fn with_access(self, _access: Access) -> Self {
        self
    }

    /// Acquires the lock with this key, however long others hold it. Dropping the future gives up.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases the lock as the contestant's users do. Waits for the nodes if the contestant does.
    fn release(&self, key: &str, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}
