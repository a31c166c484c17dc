use futures::{FutureExt, future::BoxFuture};

use crate::{
    Result,
    contestant::Contestant,
    load::{self, Load},
    sample::Sample,
};

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
