//! Holding a lock to the end of a response's body.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tokio::{task::AbortHandle, time::sleep};

use crate::{Holding, Release};

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
#[pin_project]
pub struct HoldBody<B> {
    #[pin]
    body: B,
    holding: Option<Capped>,
}

impl<B: Body> HoldBody<B> {
    fn new(body: B, holding: Option<Holding>, max: Duration) -> Self {
        // Nobody asks a body for frames that says that it has none.
        let holding = holding.filter(|_| !body.is_end_stream());
        Self {
            body,
            holding: holding.map(|it| Capped::new(it, max)),
        }
    }
}

impl<B: Body> Body for HoldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = this.body.as_mut().poll_frame(cx);
        let has_ended = match &frame {
            Poll::Ready(Some(Ok(_))) => this.body.is_end_stream(),
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        if has_ended {
            *this.holding = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
