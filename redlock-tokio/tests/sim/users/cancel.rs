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
    Never,
    /// After it was polled so often: at once, or instead of the next poll. Then the future was woken, and cannot act on
    /// it any more.
    Polls {
        left: u32,
        is_dropped_at_once: bool,
    },
    /// After this time.
    Time(Duration),
}

/// How often a future is dropped that need not be, of a million.
const SOMETIMES: u32 = 120_000;

/// About as long as a round trip takes.
const MOMENT: Duration = Duration::from_millis(2);

/// Polls a future a few times. `None` if it has not ended by then.
struct Polled<F> {
    /// Boxed, so that it can be dropped at once.
    future: Option<Pin<Box<F>>>,
    left: u32,
    /// Whether it is dropped after the last poll, and not when it would be polled again.
    is_dropped_at_once: bool,
}

impl Cancel {
    pub(crate) fn draw(rng: &mut Rng, scale: &Scale) -> Self {
        if rng.bool() {
            let mean = rng.pick(&[scale.work, MOMENT]);
            return Self::Time(around(rng, mean));
        }
        // Most futures are polled twice or less, and those that work under a lock more often.
        let most = rng.pick(&[2, 12]);
        Self::Polls {
            left: rng.u32(..=most),
            is_dropped_at_once: rng.bool(),
        }
    }

    /// Draws for a future that is seldom dropped.
    pub(crate) fn sometimes(rng: &mut Rng, scale: &Scale) -> Self {
        if rng.chance(SOMETIMES) {
            Self::draw(rng, scale)
        } else {
            Self::Never
        }
    }

    /// Runs a future to its end, or drops it. `None` if it was dropped.
    pub(crate) async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Never => Some(future.await),
            Self::Time(limit) => timeout(limit, future).await.ok(),
            Self::Polls {
                left,
                is_dropped_at_once,
            } => {
                let polled = Polled {
                    future: Some(Box::pin(future)),
                    left,
                    is_dropped_at_once,
                };
                polled.await
            }
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
            if left > 0 || !self.is_dropped_at_once {
                return Poll::Pending;
            }
        }
        self.future = None;
        Poll::Ready(None)
    }
}
