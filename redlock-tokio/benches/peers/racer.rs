use futures::{FutureExt, future::BoxFuture};

use crate::{
    Result,
    contestant::Contestant,
    load::{self, Load},
    sample::Sample,
};

/// A contestant of any type, so that different ones can take turns. The dynamic call runs a whole measurement,
/// so the cycles do not pay for it.
pub(crate) trait Racer: Send + Sync {
    /// The contestant's name in tables.
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
