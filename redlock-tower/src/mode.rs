//! The fate of a call whose caller goes away.

mod detached;
mod inline;

use tower_service::Service;

pub use self::{detached::Detached, inline::Inline};
use crate::{CallError, CallGuard};

/// How a call runs once it has its lock: [`Inline`] or [`Detached`].
///
/// This trait is sealed: only this crate implements it.
pub trait Mode<S, Request>: sealed::Sealed
where
    S: Service<Request>,
{
    /// The response that goes to the caller.
    type Response;

    /// The future of the call.
    type Future: Future<Output = Result<Self::Response, CallError<S::Error>>>;

    /// Runs a call to its end, and releases its lock.
    #[doc(hidden)]
    fn run(&self, inner: S, request: Request, guard: Option<CallGuard>) -> Self::Future;
}

pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "seals the trait `Mode`")]
    pub trait Sealed {}
}
