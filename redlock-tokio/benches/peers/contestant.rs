use crate::Result;

/// Something that acquires and releases locks over Redis nodes.
pub(crate) trait Contestant: Clone + Send + Sync + Sized + 'static {
    /// What tables call it.
    const NAME: &'static str;

    /// What is kept between acquiring and releasing.
    type Held: Send + 'static;

    /// Connects to the nodes at these URLs.
    fn connect(urls: &[String]) -> impl Future<Output = Result<Self>> + Send;

    /// Acquires the lock with this key, which is free.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases it, as the contestant's users do: waiting for the nodes, if that is what it does.
    fn release(&self, key: &str, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}
