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

use super::{
    Mode,
    inline::{Inline, InlineFuture},
    sealed::Sealed,
};
use crate::{AtHead, CallError, Release, Running};

/// Runs each call that has a lock in its own task, so that the call finishes even if its caller goes away.
///
/// So a lock is never released while its call still runs. A caller that goes away while it *waits* for the lock
/// leaves the queue, as with [`Inline`]. A call that panics panics in its caller too. The task has the span of its
/// caller, but not its task-locals.
///
/// A call without a lock runs inline.
///
/// # Panics
///
/// A call with a lock panics outside a tokio runtime.
#[derive(Clone, Debug, Default)]
pub struct Detached<R = AtHead> {
    pub(crate) release: R,
    /// Counts the calls that have a lock.
    pub(crate) tasks: Option<TaskTracker>,
    /// Whether calls run as part of the response future all the same.
    pub(crate) in_place: bool,
}

impl<R> Sealed for Detached<R> {}

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
        if let Some(tasks) = &self.tasks {
            call.track(tasks.token());
        }
        // Only a call with a lock needs a task, so that the lock is not released too early.
        let kind = if call.has_lock() && !self.in_place {
            let call = inline.run(call).instrument(Span::current());
            Kind::Task(tokio::spawn(call).fuse())
        } else {
            Kind::Inline(inline.run(call))
        };
        DetachedFuture { kind }
    }
}

/// The future of a call that runs [`Detached`]. Dropping it does not stop a call that has a lock.
#[pin_project]
pub struct DetachedFuture<S, Request, R>
where
    S: Service<Request>,
    R: Release<S::Response>,
{
    #[pin]
    kind: Kind<S, Request, R>,
}

/// A task that can be polled after its end.
type Task<T, E> = Fuse<JoinHandle<Result<T, CallError<E>>>>;

#[pin_project(project = KindProjection)]
enum Kind<S, Request, R>
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
    type Output = Result<R::Response, CallError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = match self.project().kind.project() {
            KindProjection::Task(task) => task,
            KindProjection::Inline(call) => return call.poll(cx),
        };
        match ready!(Pin::new(task).poll(cx)) {
            Ok(outcome) => Poll::Ready(outcome),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime shuts down, and drops this task too.
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
