use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_service::Service;

use super::{Mode, sealed::Sealed};
use crate::{AtHead, CallError, Release, Running};

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
    type Future = InlineFuture<S, Request, R>;

    fn run(&self, call: Running<S, Request>) -> Self::Future {
        InlineFuture {
            call,
            release: self.release.clone(),
        }
    }
}

/// The future of a call that runs [`Inline`].
#[pin_project]
pub struct InlineFuture<S, Request, R>
where
    S: Service<Request>,
{
    #[pin]
    call: Running<S, Request>,
    release: R,
}

impl<S, Request, R> Future for InlineFuture<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    type Output = Result<R::Response, CallError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = ready!(this.call.poll(cx));
        Poll::Ready(outcome.map(|(response, guard)| this.release.release(response, guard)))
    }
}

impl<S, Request, R> fmt::Debug for InlineFuture<S, Request, R>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InlineFuture")
    }
}
