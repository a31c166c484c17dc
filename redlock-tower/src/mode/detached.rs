use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::task::JoinHandle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tower_service::Service;

use super::Mode;
use crate::{AtHead, Holding, LockError, Release, Running};

/// Runs calls in tasks of their own, to their end, whether their callers wait or go away: a lock is
/// never released under work that is still under way.
///
/// A caller that goes away while it *waits* for the lock gives up its place, as ever. A panic of the
/// call goes on in its caller.
#[derive(Clone, Debug, Default)]
pub struct Detached<R = AtHead> {
    pub(crate) release: R,
    pub(crate) tasks: TaskTracker,
}

impl<S, Request, R> Mode<S, Request> for Detached<R>
where
    S: Service<Request> + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    Request: Send + 'static,
    R: Release<S::Response> + Clone,
{
    type Response = R::Response;
    type Future = DetachedFuture<S::Response, S::Error, R>;

    fn run(&self, call: Running<S, Request>) -> Self::Future {
        DetachedFuture {
            task: tokio::spawn({
                let token = self.tasks.token();
                async move { (call.await, token) }
            }),
            release: self.release.clone(),
        }
    }
}

/// What the call ends with, and behind it, so that it is dropped later, what counts it as running. If
/// nobody takes the outcome, the runtime drops it some time after the task: a tracker of tasks alone
/// would be done while the lock is still held, and the process could end without a release.
type Outcome<T, E> = (Result<(T, Option<Holding>), LockError<E>>, TaskTrackerToken);

/// The future of a call that runs [`Detached`]. Dropping it leaves the call alone.
pub struct DetachedFuture<T, E, R> {
    task: JoinHandle<Outcome<T, E>>,
    release: R,
}

// Nothing in it is pinned.
impl<T, E, R> Unpin for DetachedFuture<T, E, R> {}

impl<T, E, R> Future for DetachedFuture<T, E, R>
where
    R: Release<T>,
{
    type Output = Result<R::Response, LockError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok((Ok((response, holding)), _running)) => {
                Poll::Ready(Ok(self.release.release(response, holding)))
            }
            Ok((Err(error), _running)) => Poll::Ready(Err(error)),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is going away, and this task with it.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T, E, R> fmt::Debug for DetachedFuture<T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetachedFuture")
    }
}
