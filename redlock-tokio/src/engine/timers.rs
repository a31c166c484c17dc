//! One task for every deadline: retries, extensions, the longest hold, the end of validity, the end of a wait.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    mem,
    sync::{Arc, Weak},
};

use redlock_core::Timestamp;
use tokio::task::yield_now;

use crate::{
    Clock, foreign,
    sync::{
        Mutex, Notify,
        atomic::{self, AtomicBool},
    },
};

/// How many timeouts are handled before other tasks may run.
const MAX_AT_ONCE: usize = 256;

/// Something with deadlines, at which the timers call it back.
pub(crate) trait Timed: Debug + Send + Sync + 'static {
    /// Returns its place in the order of arrival.
    fn id(&self) -> u64;

    /// Does what is due. The timers have forgotten the deadline.
    fn handle_timeout(self: &Arc<Self>, now: Timestamp);

    /// Ends, because nothing will call back any more.
    fn abandon(self: &Arc<Self>);
}

/// The deadlines of all requests of one [`Redlock`](crate::Redlock).
///
/// Setting or clearing a deadline wakes the task only if the deadline comes before the time until which the
/// task sleeps.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    clock: Clock,
    deadlines: Mutex<Deadlines<T>>,
    earlier: Notify,
    /// As in `deadlines`, to be read without its lock.
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Deadlines<T> {
    /// By time, then by id. Each has one deadline at most.
    due: BTreeMap<(Timestamp, u64), Weak<T>>,
    /// Their deadlines were reached. They are called back now.
    in_hand: Vec<Arc<T>>,
    sleeping_until: Timestamp,
    /// The task has ended, or is about to end.
    closed: bool,
}

/// The task has ended, so it would never call back.
pub(crate) struct TimersClosed;

impl<T> Timers<T> {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            deadlines: Mutex::new(Deadlines {
                due: BTreeMap::new(),
                in_hand: Vec::new(),
                // As if asleep until something is due.
                sleeping_until: Timestamp::MAX,
                closed: false,
            }),
            earlier: Notify::new(),
            is_closed: false.into(),
        })
    }

    /// Returns whether the task has ended, so that no lock can be acquired or renewed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(atomic::Ordering::SeqCst)
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.deadlines.lock().closed = true;
        self.is_closed.store(true, atomic::Ordering::SeqCst);
        self.earlier.notify_one();
    }
}

impl<T: Timed> Timers<T> {
    /// Moves a deadline. The caller holds the lock of what has the deadline.
    ///
    /// # Errors
    ///
    /// Fails if there is a new deadline and the task has ended.
    pub(crate) fn reschedule(
        &self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        whom: &Arc<T>,
    ) -> Result<(), TimersClosed> {
        let id = whom.id();
        let mut deadlines = self.deadlines.lock();
        if let Some(at) = from {
            deadlines.due.remove(&(at, id));
        }
        if let Some(at) = to {
            if deadlines.closed {
                return Err(TimersClosed);
            }
            deadlines.due.insert((at, id), Arc::downgrade(whom));
            if at < deadlines.sleeping_until {
                // A run of ever earlier deadlines wakes the task once.
                deadlines.sleeping_until = at;
                drop(deadlines);
                self.earlier.notify_one();
            }
        }
        Ok(())
    }

    /// Returns how many have a deadline.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        self.deadlines.lock().due.len()
    }

    /// Returns all that have a deadline, in the order of their ids.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<T>> + use<T> {
        let deadlines = self.deadlines.lock();
        let due = deadlines.due.values().filter_map(Weak::upgrade);
        // Those in hand may have set a new deadline already.
        let all = due.chain(deadlines.in_hand.iter().cloned());
        let by_id: BTreeMap<_, _> = all.map(|timed| (timed.id(), timed)).collect();
        by_id.into_values()
    }

    /// Returns the task. Dropping it abandons everything, even if it never ran.
    pub(crate) fn run(self: Arc<Self>) -> impl Future<Output = ()> + Send + use<T> {
        // The runtime may end before it polls the task for the first time.
        let task = AbandonOnDrop(self);
        async move { task.0.call_back().await }
    }

    async fn call_back(&self) {
        let mut due = Vec::new();
        loop {
            let now = self.clock.now();
            let next = {
                let mut deadlines = self.deadlines.lock();
                if deadlines.closed {
                    return;
                }
                deadlines.take_due(now, &mut due);
                deadlines.in_hand.clone_from(&due);
                let first = deadlines.due.keys().next();
                deadlines.sleeping_until = first.map_or(Timestamp::MAX, |(at, _)| *at);
                deadlines.sleeping_until
            };
            if !due.is_empty() {
                for timed in due.drain(..) {
                    // This wakes tasks, and logs: with code of the user.
                    foreign::call(|| timed.handle_timeout(now));
                }
                // These may be the last handles, and what they refer to must not end under this lock.
                let done = mem::take(&mut self.deadlines.lock().in_hand);
                drop(done);
                // They have set new deadlines. Other tasks may run before these are looked at.
                yield_now().await;
                continue;
            }
            tokio::select! {
                biased; // Any order would do: after either, the next round does all that is due.
                () = self.earlier.notified() => {}
                () = self.clock.sleep_until(next), if next < Timestamp::MAX => {}
            }
        }
    }
}

/// Abandons everything when the task ends. Without the task, some waiters would wait for ever.
struct AbandonOnDrop<T: Timed>(Arc<Timers<T>>);

impl<T: Timed> Drop for AbandonOnDrop<T> {
    fn drop(&mut self) {
        self.0.close();
        for timed in self.0.all() {
            timed.abandon();
        }
    }
}

impl<T> Deadlines<T> {
    fn take_due(&mut self, now: Timestamp, into: &mut Vec<Arc<T>>) {
        while into.len() < MAX_AT_ONCE
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            into.extend(entry.remove().upgrade());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;

    use super::*;

    #[derive(Debug, Default)]
    struct Abandoned(AtomicBool);

    impl Timed for Abandoned {
        fn id(&self) -> u64 {
            0
        }

        fn handle_timeout(self: &Arc<Self>, _: Timestamp) {}

        fn abandon(self: &Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_is_dropped_before_it_runs_abandons_everything() {
        let timers = Timers::new(Clock::system());
        let timed = Arc::new(Abandoned::default());
        let set = || timers.reschedule(None, Some(Timestamp::MAX), &timed);
        assert!(set().is_ok());
        drop(Arc::clone(&timers).run());
        assert!(timed.0.load(Ordering::Relaxed));
        assert!(set().is_err());
    }

    #[test]
    fn a_task_that_has_called_back_keeps_nothing() {
        let timers = Timers::new(Clock::system());
        let timed = Arc::new(Abandoned::default());
        let set = timers.reschedule(None, Some(Timestamp::ZERO), &timed);
        assert!(set.is_ok());
        let mut task = Box::pin(Arc::clone(&timers).run());
        // The task has called back, and lets other tasks run.
        assert!((&mut task).now_or_never().is_none());
        assert_eq!((Arc::strong_count(&timed), Arc::weak_count(&timed)), (1, 0));
    }
}
