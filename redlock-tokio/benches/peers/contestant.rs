use crate::Result;

/// Something that acquires and releases locks over Redis nodes.
pub(crate) trait Contestant: Clone + Send + Sync + Sized + 'static {
    /// The contestant's name in tables.
    const NAME: &'static str;

    /// The state between an acquisition and its release.
    type Held: Send + 'static;

    /// Connects to the nodes at these URLs.
    fn connect(urls: &[String]) -> impl Future<Output = Result<Self>> + Send;

    /// Acquires the lock with this key, which is free.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases the lock as the contestant's users do. Waits for the nodes if the contestant does.
    fn release(&self, key: &str, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}
