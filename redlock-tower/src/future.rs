use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use redlock_tokio::LockFuture;
use tower_service::Service;

use crate::{
    ExtractKey, LockError, Mode, Running, ShareHold,
    rules::{Place, Rules},
    telemetry::Wait,
};

/// The future of a call behind a [`LockService`](crate::LockService).
///
/// # Cancel safety
///
/// Dropped while it waits, it leaves the lock alone. For what happens to a call that is dropped later, see
/// the modes [`Inline`](crate::Inline) and [`Detached`](crate::Detached).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, Request, K, H, M>
where
    S: Service<Request>,
    K: ExtractKey<Request>,
    M: Mode<S, Request>,
{
    #[pin]
    state: State<Request, K::Future, M::Future>,
    /// Until the inner service is called.
    inner: Option<S>,
    rules: Rules,
    share: H,
    mode: M,
}

#[pin_project(project = StateProjection, project_replace = StateReplacement)]
#[expect(
    clippy::large_enum_variant,
    reason = "whichever it is, it lives as long as the call"
)]
enum State<Request, E, F> {
    Extracting {
        #[pin]
        key: E,
    },
    Locking {
        lock: LockFuture,
        request: Request,
        wait: Wait,
        _place: Place,
    },
    Calling {
        #[pin]
        call: F,
    },
    Done,
}

impl<S, Request, K, H, M> ResponseFuture<S, Request, K, H, M>
where
    S: Service<Request>,
    K: ExtractKey<Request>,
    M: Mode<S, Request>,
{
    pub(crate) fn new(key: K::Future, inner: S, rules: Rules, share: H, mode: M) -> Self {
        Self {
            state: State::Extracting { key },
            inner: Some(inner),
            rules,
            share,
            mode,
        }
    }
}

impl<S, Request, K, H, M> Future for ResponseFuture<S, Request, K, H, M>
where
    S: Service<Request>,
    K: ExtractKey<Request>,
    H: ShareHold<Request>,
    M: Mode<S, Request>,
{
    type Output = Result<M::Response, LockError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let rules = &*this.rules;
        // Calls the inner service, with a lock or without.
        let mut call = |request, holding| {
            let running = Running::new(this.inner.take()?, request, holding);
            Some(State::Calling {
                call: this.mode.run(running),
            })
        };
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Extracting { key } => {
                    let (request, wanted) = ready!(key.poll(cx));
                    match wanted {
                        Ok(Some(wanted)) => match rules.enter() {
                            Ok(place) => Some(State::Locking {
                                lock: rules.lock(wanted).into_future(),
                                request,
                                wait: rules.telemetry.wait(),
                                _place: place,
                            }),
                            Err(error) => {
                                rules.telemetry.wait().end("queue_full");
                                this.state.set(State::Done);
                                return Poll::Ready(Err(LockError::from(error)));
                            }
                        },
                        Ok(None) => call(request, None),
                        Err(rejection) => {
                            rules.telemetry.wait().end("invalid");
                            this.state.set(State::Done);
                            return Poll::Ready(Err(LockError::Key(rejection)));
                        }
                    }
                }
                StateProjection::Locking { lock, wait, .. } => {
                    let locked = {
                        let _entered = wait.span().enter();
                        ready!(Pin::new(lock).poll(cx))
                    };
                    let StateReplacement::Locking {
                        mut request, wait, ..
                    } = this.state.as_mut().project_replace(State::Done)
                    else {
                        return Poll::Pending;
                    };
                    match locked {
                        Ok(guard) => {
                            wait.end("acquired");
                            let holding = rules.hold(guard);
                            this.share.share(&mut request, holding.lock().clone());
                            call(request, Some(holding))
                        }
                        Err(error) => {
                            if !rules.goes_without(&error) {
                                let error = LockError::from(error);
                                wait.end(result_of(&error));
                                return Poll::Ready(Err(error));
                            }
                            tracing::warn!(%error, "no lock is to be had: called without");
                            wait.end("failed_open");
                            call(request, None)
                        }
                    }
                }
                StateProjection::Calling { call } => {
                    let outcome = ready!(call.poll(cx));
                    this.state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                StateProjection::Done => None,
            };
            match next {
                Some(next) => this.state.set(next),
                // Polled again after its end; pending is what a fused future would say.
                None => return Poll::Pending,
            }
        }
    }
}

/// What metrics call it.
fn result_of<E>(error: &LockError<E>) -> &'static str {
    match error {
        LockError::Contended(_) => "contended",
        LockError::QueueFull(_) => "queue_full",
        LockError::WaitTooLong(_) => "wait_too_long",
        LockError::Unavailable(_) => "unavailable",
        _ => "invalid",
    }
}

impl<S, Request, K, H, M> fmt::Debug for ResponseFuture<S, Request, K, H, M>
where
    S: Service<Request>,
    K: ExtractKey<Request>,
    M: Mode<S, Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Extracting { .. } => "ResponseFuture(Extracting)",
            State::Locking { .. } => "ResponseFuture(Locking)",
            State::Calling { .. } => "ResponseFuture(Calling)",
            State::Done => "ResponseFuture(Done)",
        })
    }
}
