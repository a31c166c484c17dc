use futures::{FutureExt, future::BoxFuture};

use crate::{
    Result,
    load::{self, Load},
    sample::Sample,
};

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

/// A contestant whose type is forgotten, so that different ones can take turns. Only a whole
/// measurement goes through this, so it costs no cycle anything.
pub(crate) trait Racer: Send + Sync {
    /// What tables call it.
    fn name(&self) -> &'static str;

    /// Runs the load once.
    fn run<'a>(&'a self, load: &'a Load) -> BoxFuture<'a, Result<Sample>>;
}

impl<C: Contestant> Racer for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn run<'a>(&'a self, load: &'a Load) -> BoxFuture<'a, Result<Sample>> {
        load::run(self, load).boxed()
    }
}
