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
    holding: Option<Capped>,
    /// Set if the body ends with the lock.
    lost: Option<BoxFuture<'static, LossReason>>,
}

impl<B: Body> HoldBody<B> {
    fn new(body: B, holding: Option<Holding>, max: Duration) -> Self {
        // Nobody asks a body for frames that says that it has none.
        let holding = holding.filter(|_| !body.is_end_stream());
        Self {
            body: Some(body),
            lost: holding.as_ref().and_then(Holding::cut_off),
            holding: holding.map(|it| Capped::new(it, max)),
        }
    }
}

/// A body without a lock.
impl<B: Default> Default for HoldBody<B> {
    fn default() -> Self {
        Self {
            body: Some(B::default()),
            holding: None,
            lost: None,
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
        if let Some(lost) = this.lost
            && let Poll::Ready(reason) = lost.poll_unpin(cx)
        {
            this.body.set(None);
            *this.lost = None;
            *this.holding = None;
            return Poll::Ready(Some(Err(LockError::Lost(reason))));
        }
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        let goes_on = matches!(frame, Some(Ok(_))) && !body.is_end_stream();
        if !goes_on {
            *this.lost = None;
            *this.holding = None;
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
            .field("holds", &self.holding.is_some())
            .finish_non_exhaustive()
    }
}

/// A lock that is released when this is dropped, or after a time.
///
/// The time is kept by a task: a body whose reader has stopped reading is not polled any more, and could
/// not keep it.
struct Capped {
    holding: Arc<Mutex<Option<Holding>>>,
    cap: AbortHandle,
}

impl Capped {
    fn new(holding: Holding, max: Duration) -> Self {
        let holding = Arc::new(Mutex::new(Some(holding)));
        let capped = Arc::clone(&holding);
        let cap = tokio::spawn(async move {
            sleep(max).await;
            release(&capped);
        });
        Self {
            holding,
            cap: cap.abort_handle(),
        }
    }
}

impl Drop for Capped {
    fn drop(&mut self) {
        self.cap.abort();
        release(&self.holding);
    }
}

fn release(holding: &Mutex<Option<Holding>>) {
    // No code panics while it holds the mutex.
    let holding = holding
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    drop(holding);
}
