use tower_service::Service;

use super::{Mode, sealed::Sealed};
use crate::{AtHead, CallGuard, Release, Running};

/// Runs calls as part of the response future.
///
/// A caller that goes away drops the inner call too, and the lock is released at once. An operation that the call
/// has started elsewhere, such as a database statement, may then go on without the lock. Where that matters, use
/// [`Detached`](super::Detached).
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline<R = AtHead> {
    pub(crate) release: R,
}

impl<R> Sealed for Inline<R> {}

impl<S, Request, R> Mode<S, Request> for Inline<R>
where
    S: Service<Request>,
    R: Release<S::Response> + Clone,
{
    type Response = R::Response;
    type Future = Running<S, Request, R>;

    fn run(&self, inner: S, request: Request, guard: Option<CallGuard>) -> Self::Future {
        Running::new(inner, request, guard, self.release.clone())
    }
}
