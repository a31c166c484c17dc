use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_service::Service;

use crate::{
    CallError, CallGuard, ExtractKey, LockLayer, Mode, ShareHold, rules::Rules, waiting::Waiting,
};

/// The future of a call behind a [`LockService`](crate::LockService).
///
/// # Cancel safety
///
/// Dropping the future while it waits for the lock gives up the wait, and the inner service is not called. The
/// modes [`Inline`](crate::Inline) and [`Detached`](crate::Detached) say what happens to a call that is dropped
/// later.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, Request, K, H, M>
where
    S: Service<Request>,
    K: ExtractKey<Request>,
    M: Mode<S, Request>,
{
    #[pin]
    state: State<K::Future, M::Future>,
    /// Empty before the key is extracted, and once the inner service was called.
    request: Option<Request>,
    /// Empty once the inner service was called.
    inner: Option<S>,
    rules: Arc<Rules>,
    share: H,
    mode: M,
}

#[pin_project(project = StateProjection)]
#[allow(clippy::large_enum_variant, reason = "a box allocates for each call")]
enum State<E, F> {
    Extracting {
        #[pin]
        key: E,
    },
    Waiting {
        waiting: Waiting,
    },
    Running {
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
    pub(crate) fn new(layer: &LockLayer<K, H, M>, inner: S, request: Request) -> Self
    where
        H: Clone,
        M: Clone,
    {
        Self {
            state: State::Extracting {
                key: layer.key.extract(request),
            },
            request: None,
            inner: Some(inner),
            rules: Arc::clone(&layer.rules),
            share: layer.share.clone(),
            mode: layer.mode.clone(),
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
    type Output = Result<M::Response, CallError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let rules = &**this.rules;
        let mut run = |request: &mut Option<Request>, guard: Option<CallGuard>| {
            let call = this.mode.run(this.inner.take()?, request.take()?, guard);
            Some(State::Running { call })
        };
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Extracting { key } => {
                    let (request, wanted) = ready!(key.poll(cx));
                    *this.request = Some(request);
                    match wanted.and_then(|it| it.map(|it| rules.checked(it)).transpose()) {
                        Ok(Some(wanted)) => Ok(Some(State::Waiting {
                            waiting: Waiting::new(rules, wanted),
                        })),
                        Ok(None) => Ok(run(this.request, None)),
                        Err(rejection) => {
                            rules.telemetry.wait_timer().end("invalid");
                            Err(CallError::Key(rejection))
                        }
                    }
                }
                StateProjection::Waiting { waiting } => {
                    let outcome = ready!(waiting.poll(rules, cx));
                    waiting.end(rules, outcome).map(|guard| {
                        if let (Some(request), Some(guard)) = (&mut *this.request, &guard) {
                            this.share.share(request, guard.lock().clone());
                        }
                        run(this.request, guard)
                    })
                }
                StateProjection::Running { call } => {
                    let outcome = ready!(call.poll(cx));
                    this.state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                StateProjection::Done => Ok(None),
            };
            match next {
                Ok(Some(next)) => this.state.set(next),
                // The caller polls a future that has ended. Like a fused future, it stays pending.
                Ok(None) => return Poll::Pending,
                Err(error) => {
                    this.state.set(State::Done);
                    return Poll::Ready(Err(error));
                }
            }
        }
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
            State::Waiting { .. } => "ResponseFuture(Waiting)",
            State::Running { .. } => "ResponseFuture(Running)",
            State::Done => "ResponseFuture(Done)",
        })
    }
}
