use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

/// Polls a future at most `polls` times, each time after it was woken, and then drops it.
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

/// Runs a future and wakes it at regular intervals, too. To cut the result after each number of polls cuts
/// the inner future at every point at which it may wait.
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
