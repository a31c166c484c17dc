use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use redlock_tokio::{LockFuture, LockGuard};
use tower::util::Oneshot;
use tower_service::Service;

use crate::{KeyRejection, LockError, ShareHold};

/// The future of a call behind a [`LockService`](crate::LockService).
///
/// # Cancel safety
///
/// Dropped while it waits, it leaves the lock alone. Dropped later, it drops the inner call where it
/// stands and releases the lock in the background.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, Request, H>
where
    S: Service<Request>,
{
    #[pin]
    state: State<S, Request, H>,
}

#[pin_project(project = StateProjection, project_replace = StateReplacement)]
enum State<S, Request, H>
where
    S: Service<Request>,
{
    Locking {
        lock: LockFuture,
        inner: S,
        request: Request,
        share: H,
    },
    Calling {
        #[pin]
        response: Oneshot<S, Request>,
        /// `None` for a call without a key.
        guard: Option<LockGuard>,
    },
    Rejected {
        rejection: KeyRejection,
    },
    Done,
}

impl<S, Request, H> ResponseFuture<S, Request, H>
where
    S: Service<Request>,
{
    pub(crate) fn locking(lock: LockFuture, inner: S, request: Request, share: H) -> Self {
        let state = State::Locking {
            lock,
            inner,
            request,
            share,
        };
        Self { state }
    }

    pub(crate) fn calling(inner: S, request: Request) -> Self {
        let state = State::Calling {
            response: Oneshot::new(inner, request),
            guard: None,
        };
        Self { state }
    }

    pub(crate) fn rejected(rejection: KeyRejection) -> Self {
        let state = State::Rejected { rejection };
        Self { state }
    }
}

impl<S, Request, H> Future for ResponseFuture<S, Request, H>
where
    S: Service<Request>,
    H: ShareHold<Request>,
{
    type Output = Result<S::Response, LockError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let locked = match state.as_mut().project() {
                StateProjection::Locking { lock, .. } => Some(ready!(Pin::new(lock).poll(cx))),
                StateProjection::Calling { response, .. } => {
                    let outcome = ready!(response.poll(cx));
                    // Releases the lock before the caller hears of the outcome.
                    state.set(State::Done);
                    return Poll::Ready(outcome.map_err(LockError::Inner));
                }
                StateProjection::Rejected { .. } => None,
                // Polled again after its end; pending is what a fused future would say.
                StateProjection::Done => return Poll::Pending,
            };
            match (locked, state.as_mut().project_replace(State::Done)) {
                (
                    Some(Ok(guard)),
                    StateReplacement::Locking {
                        inner,
                        mut request,
                        share,
                        ..
                    },
                ) => {
                    share.share(&mut request, guard.hold().clone());
                    state.set(State::Calling {
                        response: Oneshot::new(inner, request),
                        guard: Some(guard),
                    });
                }
                (Some(Err(error)), _) => return Poll::Ready(Err(LockError::from_lock(error))),
                (None, StateReplacement::Rejected { rejection }) => {
                    return Poll::Ready(Err(LockError::Key(rejection)));
                }
                // The state was seen above, and nobody changed it in between.
                _ => return Poll::Pending,
            }
        }
    }
}

impl<S, Request, H> fmt::Debug for ResponseFuture<S, Request, H>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Locking { .. } => "ResponseFuture(Locking)",
            State::Calling { .. } => "ResponseFuture(Calling)",
            State::Rejected { .. } => "ResponseFuture(Rejected)",
            State::Done => "ResponseFuture(Done)",
        })
    }
}
