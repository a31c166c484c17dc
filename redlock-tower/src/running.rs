use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project::pin_project;
use redlock_tokio::LossReason;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Span;

use crate::{CallError, CallGuard, Release, under_lock};

/// A call that runs, with a lock or without one.
#[pin_project]
pub struct Running<S, Request, R>
where
    S: Service<Request>,
{
    #[pin]
    response: Option<Oneshot<S, Request>>,
    guard: Option<CallGuard>,
    span: Span,
    release: R,
}

impl<S, Request, R> Running<S, Request, R>
where
    S: Service<Request>,
{
    pub(crate) fn new(inner: S, request: Request, guard: Option<CallGuard>, release: R) -> Self {
        Self {
            response: Some(Oneshot::new(inner, request)),
            span: guard.as_ref().map_or_else(Span::none, CallGuard::span),
            guard,
            release,
        }
    }
}

impl<S, Request, R> Future for Running<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    type Output = Result<R::Response, CallError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = this.span.enter();
        let is_watching = this.guard.as_ref().is_some_and(CallGuard::is_watching);
        if is_watching && let Poll::Ready(reason) = poll_cancelled(this.guard, cx) {
            // The call is dropped before its lock.
            this.response.set(None);
            *this.guard = None;
            return Poll::Ready(Err(CallError::Lost(reason)));
        }
        let response = this.response.as_mut();
        let outcome = under_lock::poll(response, this.guard, |response| response.poll(cx));
        // The caller polls a call that has ended. Like a fused future, it stays pending.
        let Poll::Ready(outcome) = outcome.unwrap_or(Poll::Pending) else {
            if !is_watching && poll_cancelled(this.guard, cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        this.response.set(None);
        let guard = this.guard.take();
        if let Some(reason) = guard.as_ref().and_then(CallGuard::failure) {
            return Poll::Ready(Err(CallError::Lost(reason)));
        }
        Poll::Ready(match outcome {
            Ok(response) => Ok(this.release.release(response, guard)),
            Err(error) => {
                if let Some(guard) = guard {
                    guard.release();
                }
                Err(CallError::Inner(error))
            }
        })
    }
}

fn poll_cancelled(guard: &mut Option<CallGuard>, cx: &mut Context<'_>) -> Poll<LossReason> {
    match guard {
        Some(guard) => guard.poll_cancelled(cx),
        None => Poll::Pending,
    }
}

impl<S, Request, R> fmt::Debug for Running<S, Request, R>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}
