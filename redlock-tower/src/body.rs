//! Locks that are held until the response's body has ended.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use self::lock::BodyLock;
use crate::{CallError, CallGuard, Release, mode::sealed::Sealed, under_lock};

mod lock;

/// Releases the lock when the response's body has ended or is dropped, but at most a given time after the head.
///
/// The limit is for clients that read slowly. See
/// [`LockLayer::hold_until_body_end`](crate::LockLayer::hold_until_body_end).
///
/// # Panics
///
/// A response with a lock panics outside a tokio runtime.
#[derive(Clone, Copy, Debug)]
pub struct AtBodyEnd {
    pub(crate) max: Duration,
}

impl Sealed for AtBodyEnd {}

impl<B: Body> Release<Response<B>> for AtBodyEnd {
    type Response = Response<HoldBody<B>>;

    fn release(&self, response: Response<B>, guard: Option<CallGuard>) -> Response<HoldBody<B>> {
        let lock = guard.map(|guard| BodyLock::new(guard, self.max, response.headers()));
        response.map(|body| {
            let has_ended = body.is_end_stream();
            let mut it = HoldBody {
                body: Some(body),
                lock,
            };
            if has_ended {
                // The server asks such a body for no frame.
                it.release();
            }
            it
        })
    }
}

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

impl<B> HoldBody<B> {
    fn release(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.release();
        }
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
        let body = this.body.as_mut();
        let polled = under_lock::poll(body, this.lock, |body| body.poll_frame(cx));
        let frame = ready!(polled.unwrap_or(Poll::Ready(None)));
        let has_ended = match &frame {
            Some(Ok(frame)) => {
                let is_last = this
                    .body
                    .as_ref()
                    .as_pin_ref()
                    .is_none_or(|body| body.is_end_stream());
                is_last
                    || this
                        .lock
                        .as_mut()
                        .is_some_and(|lock| lock.is_complete_with(frame))
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

impl<B> fmt::Debug for HoldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldBody")
            .field("is_locked", &self.lock.is_some())
            .finish_non_exhaustive()
    }
}
