use std::{future::poll_fn, sync::Mutex, task::Poll, task::Waker, time::Duration};

use redlock_core::Timestamp;

/// A clock that moves only when a scenario says so.
///
/// Its mutex is std's: reading the time is no point where another thread may run.
#[derive(Debug)]
pub(crate) struct Time(Mutex<State>);

#[derive(Debug)]
struct State {
    now: Timestamp,
    sleepers: Vec<(Timestamp, Waker)>,
}

impl Time {
    pub(super) fn new() -> Self {
        // Not zero, so that subtracting a little from the time makes a difference.
        let now = Timestamp::ZERO.saturating_add(Duration::from_secs(1000));
        Self(Mutex::new(State {
            now,
            sleepers: Vec::new(),
        }))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.lock().unwrap().now
    }

    /// Moves the clock, and wakes the tasks whose time has come.
    pub(super) fn advance(&self, by: Duration) {
        let mut state = self.0.lock().unwrap();
        state.now = state.now.saturating_add(by);
        let now = state.now;
        let due = state.sleepers.extract_if(.., |(until, _)| *until <= now);
        let due: Vec<_> = due.map(|(_, waker)| waker).collect();
        drop(state);
        for waker in due {
            waker.wake();
        }
    }

    pub(crate) async fn sleep_until(&self, until: Timestamp) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if until <= state.now {
                return Poll::Ready(());
            }
            state.sleepers.push((until, cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}
