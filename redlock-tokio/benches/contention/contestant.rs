use crate::{Result, policy::Policy};

/// Something that acquires and releases a lock over Redis nodes.
pub(crate) trait Contestant: Clone + Send + Sync + Sized + 'static {
    /// What is kept between acquiring and releasing.
    type Held: Send + 'static;

    /// Connects to the nodes at these URLs. The policy is for this crate's lock; others have none.
    fn connect(urls: &[String], policy: Policy) -> impl Future<Output = Result<Self>> + Send;

    /// Acquires the lock with this key, however long others hold it. Dropping the future gives up.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases it, as the contestant's users do: waiting for the nodes, if that is what it does.
    fn release(&self, key: &str, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}
