//! Futures that are dropped before their end.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::timeout;

use super::terms::around;
use crate::{rng::Rng, scale::Scale};

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cancel {
    /// After it was polled so often.
    Polls(u32),
    /// After this time.
    Time(Duration),
}

/// Polls a future a few times. `None` if it has not ended by then.
struct Polled<F> {
    /// Boxed, so that it can be dropped at once.
    future: Option<Pin<Box<F>>>,
    left: u32,
}

impl Cancel {
    pub(crate) fn draw(rng: &mut Rng, scale: &Scale) -> Self {
        if rng.bool() {
            Self::Polls(rng.u32(..3))
        } else {
            Self::Time(around(rng, scale.work))
        }
    }

    /// Runs a future to its end, or drops it. `None` if it was dropped.
    pub(crate) async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Polls(left) => {
                let future = Some(Box::pin(future));
                Polled { future, left }.await
            }
            Self::Time(limit) => timeout(limit, future).await.ok(),
        }
    }
}

impl<F: Future> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            if let Some(future) = &mut self.future
                && let Poll::Ready(output) = future.as_mut().poll(cx)
            {
                return Poll::Ready(Some(output));
            }
        }
        if self.left == 0 {
            // Dropped after the last poll, and not when it would be polled again.
            self.future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}
