//! Holding a lock to the end of a response's body.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tokio::time::{Sleep, sleep};

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
    /// The lock, and when it is released at the latest.
    holding: Option<(Holding, Pin<Box<Sleep>>)>,
}

impl<B: Body> HoldBody<B> {
    fn new(body: B, holding: Option<Holding>, max: Duration) -> Self {
        // Nobody asks a body for frames that says that it has none.
        let holding = holding.filter(|_| !body.is_end_stream());
        Self {
            body,
            holding: holding.map(|it| (it, Box::pin(sleep(max)))),
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
        if let Some((_, max)) = this.holding
            && max.as_mut().poll(cx).is_ready()
        {
            *this.holding = None;
        }
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
