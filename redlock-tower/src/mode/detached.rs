use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tokio::task::JoinHandle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tower_service::Service;
use tracing::{Instrument, Span};

use super::{Inline, InlineFuture, Mode};
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
    type Future = DetachedFuture<S, Request, R>;

    fn run(&self, call: Running<S, Request>) -> Self::Future {
        let release = self.release.clone();
        let way = if call.has_lock() {
            let token = self.tasks.token();
            let call = async move { (call.await, token) };
            let task = tokio::spawn(call.instrument(Span::current()));
            Way::Task { task, release }
        } else {
            // There is no lock that could be let go under its work.
            let call = Inline { release }.run(call);
            Way::Inline { call }
        };
        DetachedFuture { way }
    }
}

/// What the call ends with, and behind it, so that it is dropped later, what counts it as running. If
/// nobody takes the outcome, the runtime drops it some time after the task: a tracker of tasks alone
/// would be done while the lock is still held, and the process could end without a release.
type Outcome<T, E> = (Result<(T, Option<Holding>), LockError<E>>, TaskTrackerToken);

/// The future of a call that runs [`Detached`]. Dropping it leaves the call alone, if it has a lock.
#[pin_project]
pub struct DetachedFuture<S, Request, R>
where
    S: Service<Request>,
{
    #[pin]
    way: Way<S, Request, R>,
}

#[pin_project(project = WayProjection)]
enum Way<S, Request, R>
where
    S: Service<Request>,
{
    Task {
        task: JoinHandle<Outcome<S::Response, S::Error>>,
        release: R,
    },
    Inline {
        #[pin]
        call: InlineFuture<S, Request, R>,
    },
}

impl<S, Request, R> Future for DetachedFuture<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    type Output = Result<R::Response, LockError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (task, release) = match self.project().way.project() {
            WayProjection::Task { task, release } => (task, release),
            WayProjection::Inline { call } => return call.poll(cx),
        };
        match ready!(Pin::new(task).poll(cx)) {
            // The token is dropped last.
            Ok((outcome, _running)) => {
                Poll::Ready(outcome.map(|(response, holding)| release.release(response, holding)))
            }
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is going away, and this task with it.
            Err(_) => Poll::Pending,
        }
    }
}

impl<S, Request, R> fmt::Debug for DetachedFuture<S, Request, R>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetachedFuture")
    }
}
