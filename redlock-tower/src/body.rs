//! Locks that are held until the response's body has ended.

mod layer;
mod lock;

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    thread::panicking,
    time::Duration,
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

pub use self::layer::{HoldBodyLayer, HoldBodyService};
use self::lock::BodyLock;
use crate::{CallError, Locked};

/// A body that holds a lock until it has ended.
///
/// If the lock is lost meanwhile, the status has already been sent. So with [`OnLost::Fail`](crate::OnLost::Fail)
/// and [`OnLost::Cancel`](crate::OnLost::Cancel) the body fails with [`CallError::Lost`], and the client sees that
/// it is incomplete.
#[pin_project]
pub struct HoldBody<B> {
    /// Empty once it is cut off.
    #[pin]
    body: Option<B>,
    lock: Option<BodyLock>,
}

impl<B: Body> HoldBody<B> {
    /// Passes the lock of a call on to the body of its response, if the call has one. The layer releases the lock when
    /// the body has ended or is dropped, but at most `max` after this call.
    ///
    /// [`LockLayer::hold_until_body_end`](crate::LockLayer::hold_until_body_end) does so for a service.
    ///
    /// # Panics
    ///
    /// With a lock, panics outside a tokio runtime.
    pub fn new(response: Response<B>, lock: Option<Locked>, max: Duration) -> Response<Self> {
        // The server asks a body that has ended for no frame. So the call keeps the lock, and releases it at its end.
        let lock = lock.filter(|_| !response.body().is_end_stream());
        let lock = lock.map(|lock| BodyLock::new(lock, max, response.headers()));
        response.map(|body| Self {
            body: Some(body),
            lock,
        })
    }
}

/// Creates a body without a lock.
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
    type Error = CallError<B::Error>;

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
            return Poll::Ready(Some(Err(CallError::Lost(reason))));
        }
        let mut polled = UnderLock {
            lock: this.lock.take(),
            body: this.body.as_mut(),
        };
        let frame = match polled.body.as_mut().as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => Poll::Ready(None),
        };
        *this.lock = polled.lock.take();
        drop(polled);
        let frame = ready!(frame);
        let has_ended = match &frame {
            Some(Ok(frame)) => {
                let (body, lock) = (this.body.as_ref(), this.lock.as_mut());
                body.as_pin_ref().is_none_or(|body| body.is_end_stream())
                    || lock.is_some_and(|lock| lock.is_complete_with(frame))
            }
            Some(Err(_)) | None => true,
        };
        if let Some(lock) = this.lock.take_if(|_| has_ended) {
            lock.release();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(CallError::Inner)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// A body while it is polled. If it panics, it is dropped before its lock, while the thread unwinds. So the lock is not
/// handed over to a waiter in this process. Otherwise a caller that catches the panic would drop both later.
struct UnderLock<'a, B> {
    body: Pin<&'a mut Option<B>>,
    lock: Option<BodyLock>,
}

impl<B> Drop for UnderLock<'_, B> {
    fn drop(&mut self) {
        if panicking() {
            self.body.set(None);
        }
    }
}

impl<B> fmt::Debug for HoldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldBody")
            .field("is_locked", &self.lock.is_some())
            .finish_non_exhaustive()
    }
}
