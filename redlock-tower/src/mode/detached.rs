use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::Fuse};
use pin_project::pin_project;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tower_service::Service;
use tracing::{Instrument, Span};

use super::{Inline, InlineFuture, Mode};
use crate::{AtHead, LockError, Release, Running};

/// Runs calls in tasks of their own, to their end, whether their callers wait or go away: a lock is
/// never released under work that is still under way.
///
/// A caller that goes away while it *waits* for the lock gives up its place, as ever. A panic of the
/// call goes on in its caller. The task has its caller's span, but not its task-locals.
///
/// # Panics
///
/// A call with a lock panics outside of a tokio runtime.
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
    R: Release<S::Response> + Clone + Send + 'static,
    R::Response: Send,
{
    type Response = R::Response;
    type Future = DetachedFuture<S, Request, R>;

    fn run(&self, mut call: Running<S, Request>) -> Self::Future {
        let inline = Inline {
            release: self.release.clone(),
        };
        // Without a lock there is none that could be let go under its work.
        let way = if call.has_lock() {
            call.track(self.tasks.token());
            let call = inline.run(call).instrument(Span::current());
            Way::Task(tokio::spawn(call).fuse())
        } else {
            Way::Inline(inline.run(call))
        };
        DetachedFuture { way }
    }
}

/// The future of a call that runs [`Detached`]. Dropping it leaves the call alone, if it has a lock.
#[pin_project]
pub struct DetachedFuture<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    #[pin]
    way: Way<S, Request, R>,
}

/// A task whose outcome is taken once.
type Task<T, E> = Fuse<JoinHandle<Result<T, LockError<E>>>>;

#[pin_project(project = WayProjection)]
enum Way<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    Task(Task<R::Response, S::Error>),
    Inline(#[pin] InlineFuture<S, Request, R>),
}

impl<S, Request, R> Future for DetachedFuture<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    type Output = Result<R::Response, LockError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = match self.project().way.project() {
            WayProjection::Task(task) => task,
            WayProjection::Inline(call) => return call.poll(cx),
        };
        match ready!(Pin::new(task).poll(cx)) {
            Ok(outcome) => Poll::Ready(outcome),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is going away, and this task with it.
            Err(_) => Poll::Pending,
        }
    }
}

impl<S, Request, R> fmt::Debug for DetachedFuture<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetachedFuture")
    }
}
