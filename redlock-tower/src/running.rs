use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use pin_project::pin_project;
use redlock_tokio::LossReason;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Span;

use crate::{Holding, LockError};

/// A call that runs under a lock, or without one, to its end. The lock comes out with the response.
#[pin_project]
pub struct Running<S, Request>
where
    S: Service<Request>,
{
    #[pin]
    response: Option<Oneshot<S, Request>>,
    holding: Option<Holding>,
    /// Set if the call ends with the lock.
    lost: Option<BoxFuture<'static, LossReason>>,
    span: Span,
}

impl<S, Request> Running<S, Request>
where
    S: Service<Request>,
{
    pub(crate) fn new(inner: S, request: Request, holding: Option<Holding>) -> Self {
        Self {
            response: Some(Oneshot::new(inner, request)),
            lost: holding.as_ref().and_then(Holding::cancelled),
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
        if let Some(lost) = this.lost
            && let Poll::Ready(reason) = lost.poll_unpin(cx)
        {
            // Where it stands.
            this.response.set(None);
            *this.holding = None;
            *this.lost = None;
            return Poll::Ready(Err(LockError::Lost(reason)));
        }
        let Some(response) = this.response.as_mut().as_pin_mut() else {
            // Polled again after its end; pending is what a fused future would say.
            return Poll::Pending;
        };
        // Outside of `self`, so that a panic drops it while it unwinds, and what is dropped then is not
        // handed over: whoever catches the panic further out drops `self` later.
        let holding = this.holding.take();
        let Poll::Ready(outcome) = response.poll(cx) else {
            *this.holding = holding;
            return Poll::Pending;
        };
        this.response.set(None);
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
