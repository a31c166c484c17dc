use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

/// Polls a future at most so many times, each time when it was woken, and then drops it, wherever
/// it is.
pub(crate) async fn cut_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left > 0 {
            left -= 1;
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
        }
        if left == 0 {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}

/// A future that is woken now and then without a reason, too. Cutting it after each number of polls
/// cuts the one inside wherever it may wait, and whatever it has set going meanwhile.
pub(crate) async fn restless<F: Future>(every: Duration, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    poll_fn(|cx| {
        while ticks.poll_tick(cx).is_ready() {}
        future.as_mut().poll(cx)
    })
    .await
}
