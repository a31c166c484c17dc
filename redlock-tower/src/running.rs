use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project::pin_project;
use redlock_tokio::LossReason;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Span;

use crate::{Holding, LockError, under_lock};

/// A call that runs under a lock, or without one, to its end. The lock comes out with the response.
#[pin_project]
pub struct Running<S, Request>
where
    S: Service<Request>,
{
    #[pin]
    response: Option<Oneshot<S, Request>>,
    holding: Option<Holding>,
    span: Span,
}

impl<S, Request> Running<S, Request>
where
    S: Service<Request>,
{
    pub(crate) fn new(inner: S, request: Request, holding: Option<Holding>) -> Self {
        Self {
            response: Some(Oneshot::new(inner, request)),
            span: holding.as_ref().map_or_else(Span::none, Holding::span),
            holding,
        }
    }

    pub(crate) fn has_lock(&self) -> bool {
        self.holding.is_some()
    }

    /// Counts the call as running for as long as it has its lock.
    pub(crate) fn track(&mut self, running: TaskTrackerToken) {
        if let Some(holding) = &mut self.holding {
            holding.tracked_by(running);
        }
    }
}

impl<S, Request> Future for Running<S, Request>
where
    S: Service<Request>,
{
    type Output = Result<(S::Response, Option<Holding>), LockError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = this.span.enter();
        let is_watched = this.holding.as_ref().is_some_and(Holding::is_watched);
        if is_watched && let Poll::Ready(reason) = poll_cancelled(this.holding, cx) {
            // Where it stands.
            this.response.set(None);
            *this.holding = None;
            return Poll::Ready(Err(LockError::Lost(reason)));
        }
        let response = this.response.as_mut();
        let outcome = under_lock::poll(response, this.holding, |response| response.poll(cx));
        // Over, and polled again, it is pending, as a fused future would be.
        let Poll::Ready(outcome) = outcome.unwrap_or(Poll::Pending) else {
            if !is_watched && poll_cancelled(this.holding, cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        this.response.set(None);
        let holding = this.holding.take();
        if let Some(reason) = holding.as_ref().and_then(Holding::failure) {
            return Poll::Ready(Err(LockError::Lost(reason)));
        }
        Poll::Ready(match outcome {
            Ok(response) => Ok((response, holding)),
            Err(error) => {
                if let Some(holding) = holding {
                    holding.release();
                }
                Err(LockError::Inner(error))
            }
        })
    }
}

fn poll_cancelled(holding: &mut Option<Holding>, cx: &mut Context<'_>) -> Poll<LossReason> {
    match holding {
        Some(holding) => holding.poll_cancelled(cx),
        None => Poll::Pending,
    }
}

impl<S, Request> fmt::Debug for Running<S, Request>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("holding", &self.holding)
            .finish_non_exhaustive()
    }
}
