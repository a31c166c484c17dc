//! Holding a lock to the end of a response's body.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use redlock_tokio::LossReason;
use tokio::{task::AbortHandle, time::sleep};

use crate::{Holding, LockError, Release};

/// Releases the lock when the response's body has ended, or is dropped, or after `max`: a client that
/// reads slowly must not keep the others out.
#[derive(Clone, Copy, Debug)]
pub struct AtBodyEnd {
    pub(crate) max: Duration,
}

impl<B: Body> Release<Response<B>> for AtBodyEnd {
    type Response = Response<HoldBody<B>>;

    fn release(&self, response: Response<B>, holding: Option<Holding>) -> Response<HoldBody<B>> {
        response.map(|body| HoldBody::new(body, holding, self.max))
    }
}

/// A body that keeps a lock until it has ended.
///
/// The head has been sent, so a loss of the lock cannot change the status any more. With
/// [`OnLost::Fail`](crate::OnLost::Fail) and [`OnLost::Cancel`](crate::OnLost::Cancel) the body is cut off
/// with [`LockError::Lost`] then, and the client sees that it is not whole.
#[pin_project]
pub struct HoldBody<B> {
    /// Until it is cut off.
    #[pin]
    body: Option<B>,
    lock: Option<BodyLock>,
}

impl<B: Body> HoldBody<B> {
    fn new(body: B, holding: Option<Holding>, max: Duration) -> Self {
        let lock = match holding {
            // Nobody asks a body for frames that says that it has none.
            Some(holding) if body.is_end_stream() => {
                holding.release();
                None
            }
            holding => holding.map(|it| BodyLock::new(it, max)),
        };
        Self {
            body: Some(body),
            lock,
        }
    }
}

/// A body without a lock.
impl<B: Default> Default for HoldBody<B> {
    fn default() -> Self {
        Self {
            body: Some(B::default()),
            lock: None,
        }
    }
}

impl<B: Body> Body for HoldBody<B> {
    type Data = B::Data;
    type Error = LockError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let mut this = self.project();
        if let Some(lock) = this.lock
            && let Poll::Ready(reason) = lock.poll_cut_off(cx)
        {
            this.body.set(None);
            *this.lock = None;
            return Poll::Ready(Some(Err(LockError::Lost(reason))));
        }
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        let goes_on = matches!(frame, Some(Ok(_))) && !body.is_end_stream();
        if let Some(lock) = this.lock.take_if(|_| !goes_on) {
            lock.release();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(LockError::Inner)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl<B> fmt::Debug for HoldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldBody")
            .field("holds", &self.lock.is_some())
            .finish_non_exhaustive()
    }
}

/// The lock of a body, for a time at most. Dropping it means that the body did not come to its end.
///
/// The time is kept by a task: a body whose reader has stopped reading is not polled any more, and could
/// not keep it.
struct BodyLock {
    holding: Arc<Mutex<Option<Holding>>>,
    cap: AbortHandle,
    /// Set if the body ends with the lock.
    cut_off: Option<BoxFuture<'static, LossReason>>,
}

impl BodyLock {
    fn new(holding: Holding, max: Duration) -> Self {
        let cut_off = holding.cut_off();
        let holding = Arc::new(Mutex::new(Some(holding)));
        let capped = Arc::clone(&holding);
        let cap = tokio::spawn(async move {
            sleep(max).await;
            release(&capped);
        });
        Self {
            holding,
            cap: cap.abort_handle(),
            cut_off,
        }
    }

    fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        match &mut self.cut_off {
            Some(lost) => lost.poll_unpin(cx),
            None => Poll::Pending,
        }
    }

    fn release(self) {
        release(&self.holding);
    }
}

impl Drop for BodyLock {
    fn drop(&mut self) {
        self.cap.abort();
        drop(take(&self.holding));
    }
}

fn release(holding: &Mutex<Option<Holding>>) {
    if let Some(holding) = take(holding) {
        holding.release();
    }
}

fn take(holding: &Mutex<Option<Holding>>) -> Option<Holding> {
    // No code panics while it holds the mutex.
    let mut holding = holding.lock().unwrap_or_else(PoisonError::into_inner);
    holding.take()
}
