//! What becomes of a call whose caller goes away.

mod detached;
mod inline;

use tower_service::Service;

pub use self::{
    detached::{Detached, DetachedFuture},
    inline::{Inline, InlineFuture},
};
use crate::{LockError, Running};

/// How a call runs once it has its lock: [`Inline`] or [`Detached`].
pub trait Mode<S, Request>
where
    S: Service<Request>,
{
    /// The response that goes on to the caller.
    type Response;

    /// What [`run`](Self::run) returns.
    type Future: Future<Output = Result<Self::Response, LockError<S::Error>>>;

    /// Runs a call to its end, and releases its lock.
    fn run(&self, call: Running<S, Request>) -> Self::Future;
}
