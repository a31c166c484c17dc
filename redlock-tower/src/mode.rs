//! The fate of a call whose caller goes away.

use std::{
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{
    FutureExt,
    future::{Either, Fuse},
};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tower_service::Service;
use tracing::{Instrument, Span};

use self::sealed::Sealed;
use crate::{AtHead, CallError, CallGuard, Release, Running};

/// How a call runs once it has its lock: [`Inline`] or [`Detached`].
///
/// This trait is sealed: only this crate implements it.
pub trait Mode<S, Request>: Sealed
where
    S: Service<Request>,
{
    /// The response that goes to the caller.
    type Response;

    /// The future of the call.
    type Future: Future<Output = Result<Self::Response, CallError<S::Error>>>;

    /// Runs a call to its end, and releases its lock.
    #[doc(hidden)]
    fn run(&self, inner: S, request: Request, guard: Option<CallGuard>) -> Self::Future;
}

pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "seals the traits `Mode` and `Release`")]
    pub trait Sealed {}
}

/// Runs calls as part of the response future.
///
/// A caller that goes away drops the inner call too, and the lock is released at once. An operation that the call
/// has started elsewhere, such as a database statement, may then go on without the lock. Where that matters, use
/// [`Detached`].
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
    type Future = Either<Task<R::Response, S::Error>, Running<S, Request, R>>;

    fn run(&self, inner: S, request: Request, mut guard: Option<CallGuard>) -> Self::Future {
        if let (Some(guard), Some(tasks)) = (&mut guard, &self.tasks) {
            guard.track(tasks.token());
        }
        // Only a call with a lock needs a task, so that the lock is not released too early.
        let needs_task = guard.is_some() && !self.in_place;
        let call = Running::new(inner, request, guard, self.release.clone());
        if needs_task {
            let task = tokio::spawn(call.instrument(Span::current()));
            Either::Left(Task(task.fuse()))
        } else {
            Either::Right(call)
        }
    }
}

/// The task of a call. Dropping it does not stop the call. It can be polled after its end.
#[derive(Debug)]
pub struct Task<T, E>(Fuse<JoinHandle<Result<T, CallError<E>>>>);

impl<T, E> Future for Task<T, E> {
    type Output = Result<T, CallError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(self.0.poll_unpin(cx)) {
            Ok(outcome) => Poll::Ready(outcome),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime shuts down, and drops this task too.
            Err(_) => Poll::Pending,
        }
    }
}
