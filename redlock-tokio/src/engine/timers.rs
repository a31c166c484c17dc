//! One task for every deadline: retries, extensions, the longest hold, the end of validity.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap},
    fmt::Debug,
    mem,
    sync::{Arc, Weak},
};

use redlock_core::Timestamp;
use tokio::task::yield_now;

use crate::{
    Clock, foreign,
    sync::{
        Mutex, MutexGuard, Notify,
        atomic::{self, AtomicBool},
    },
};

/// How many timeouts are handled before other tasks may run.
const MAX_AT_ONCE: usize = 256;

/// How many waits are kept before those that are over are removed.
const MIN_WAITS: usize = 64;

/// A lease or a waiter, which the timers call back.
///
/// A clone is one more handle of the same thing, so cloning must be cheap.
pub(crate) trait Timed: Clone + Send + Sync + 'static {
    /// A lease, which has a deadline.
    type Lease: Clone + Debug + Send + Sync;
    /// A waiter, which has no deadline to clear.
    type Waiter: Debug + Send + Sync;

    fn of_lease(lease: Self::Lease) -> Self;

    fn of_waiter(waiter: Arc<Self::Waiter>) -> Self;

    /// Returns a number that nothing else with a deadline has.
    fn id(&self) -> u64;

    /// Does what is due. The timers have forgotten the deadline.
    fn handle_timeout(&self, now: Timestamp);

    /// Ends, because nothing will call back any more.
    fn abandon(&self);
}

/// The deadlines of all leases and waiters of one [`Redlock`](crate::Redlock).
///
/// Setting or clearing a deadline wakes the task only if the deadline comes before the time until which the
/// task sleeps.
#[derive(Debug)]
pub(crate) struct Timers<T: Timed> {
    clock: Clock,
    deadlines: Mutex<Deadlines<T>>,
    earlier: Notify,
    /// As in `deadlines`, to be read without its lock.
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Deadlines<T: Timed> {
    /// By time, then by id. Each has one deadline at most.
    due: BTreeMap<(Timestamp, u64), T::Lease>,
    /// The first to end is on top. Most are over long before their time, and are removed together.
    waits: BinaryHeap<Wait<T>>,
    /// How many waits there may be until those that are over are removed.
    max_waits: usize,
    /// Their deadlines were reached. They are called back now.
    in_hand: Vec<T>,
    sleeping_until: Timestamp,
    /// The task has ended, or is about to end.
    closed: bool,
}

/// The task has ended, so it would never call back.
pub(crate) struct TimersClosed;

impl<T: Timed> Timers<T> {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            deadlines: Mutex::new(Deadlines {
                due: BTreeMap::new(),
                waits: BinaryHeap::new(),
                max_waits: MIN_WAITS,
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
        id: u64,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        lease: impl FnOnce() -> T::Lease,
    ) -> Result<(), TimersClosed> {
        let mut deadlines = self.deadlines.lock();
        if let Some(at) = from {
            deadlines.due.remove(&(at, id));
        }
        if let Some(at) = to {
            if deadlines.closed {
                return Err(TimersClosed);
            }
            deadlines.due.insert((at, id), lease());
            self.wake_before(deadlines, at);
        }
        Ok(())
    }

    /// Calls a waiter back at this time, if it still exists. Unlike a deadline, this need not be cleared.
    ///
    /// # Errors
    ///
    /// Fails if the task has ended.
    pub(crate) fn wait(
        &self,
        at: Timestamp,
        id: u64,
        waiter: &Arc<T::Waiter>,
    ) -> Result<(), TimersClosed> {
        let mut deadlines = self.deadlines.lock();
        if deadlines.closed {
            return Err(TimersClosed);
        }
        deadlines.push(Wait {
            at,
            id,
            waiter: Arc::downgrade(waiter),
        });
        self.wake_before(deadlines, at);
        Ok(())
    }

    /// Wakes the task if it would sleep for too long.
    fn wake_before(&self, mut deadlines: MutexGuard<'_, Deadlines<T>>, at: Timestamp) {
        if at < deadlines.sleeping_until {
            // A run of ever earlier deadlines wakes the task once.
            deadlines.sleeping_until = at;
            drop(deadlines);
            self.earlier.notify_one();
        }
    }

    /// Returns how many have a deadline, or wait.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        let deadlines = self.deadlines.lock();
        let due = deadlines.due.keys().map(|(_, id)| *id);
        let in_hand = deadlines.in_hand.iter().map(Timed::id);
        let waits = deadlines.waits.iter().filter(|it| !it.is_over());
        // A lease and its waiter have one id.
        let ids = due.chain(in_hand).chain(waits.map(|it| it.id));
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    /// Returns all that have a deadline and all waiters, in the order of their ids.
    pub(crate) fn all(&self) -> impl Iterator<Item = T> + use<T> {
        self.select(true)
    }

    /// Returns all that have a deadline, in the order of their ids.
    pub(crate) fn scheduled(&self) -> impl Iterator<Item = T> + use<T> {
        self.select(false)
    }

    fn select(&self, with_waiters: bool) -> impl Iterator<Item = T> + use<T> {
        let deadlines = self.deadlines.lock();
        let waits = deadlines.waits.iter().filter(|_| with_waiters);
        let waiters = waits.filter_map(Wait::upgrade);
        let leases = deadlines.due.values().cloned().map(T::of_lease);
        // Those in hand may have set a new deadline already.
        let scheduled = leases.chain(deadlines.in_hand.iter().cloned());
        let all = scheduled.chain(waiters).map(|timed| (timed.id(), timed));
        all.collect::<BTreeMap<_, _>>().into_values()
    }

    /// Drops all handles. They and these timers refer to each other, so neither would be freed otherwise.
    fn forget_all(&self) {
        let mut deadlines = self.deadlines.lock();
        let due = mem::take(&mut deadlines.due);
        // These may be the last handles, and what they refer to must not end under this lock.
        drop(deadlines);
        drop(due);
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
                deadlines.sleeping_until = deadlines.first().unwrap_or(Timestamp::MAX);
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
        self.0.forget_all();
    }
}

/// A call at a time, if the waiter still exists then.
#[derive(Debug)]
struct Wait<T: Timed> {
    at: Timestamp,
    id: u64,
    waiter: Weak<T::Waiter>,
}

impl<T: Timed> Wait<T> {
    fn is_over(&self) -> bool {
        self.waiter.strong_count() == 0
    }

    fn upgrade(&self) -> Option<T> {
        self.waiter.upgrade().map(T::of_waiter)
    }
}

impl<T: Timed> Deadlines<T> {
    /// Returns the first deadline, or the first end of a wait.
    fn first(&self) -> Option<Timestamp> {
        let due = self.due.keys().next().map(|&(at, _)| at);
        let waits = self.waits.peek().map(|wait| wait.at);
        match (due, waits) {
            (Some(due), Some(waits)) => Some(due.min(waits)),
            (due, waits) => due.or(waits),
        }
    }

    /// Adds a wait. Removes those that are over once they may be as many as the others. So each costs little, and the
    /// memory follows the number of the waiters.
    fn push(&mut self, wait: Wait<T>) {
        self.waits.push(wait);
        if self.waits.len() > self.max_waits {
            self.waits.retain(|wait| !wait.is_over());
            self.max_waits = MIN_WAITS.max(2 * self.waits.len());
            self.waits.shrink_to(self.max_waits);
        }
    }

    fn take_due(&mut self, now: Timestamp, into: &mut Vec<T>) {
        while into.len() < MAX_AT_ONCE
            && let Some(wait) = self.waits.peek()
            && wait.at <= now
        {
            into.extend(self.waits.pop().and_then(|wait| wait.upgrade()));
        }
        while into.len() < MAX_AT_ONCE
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            into.push(T::of_lease(entry.remove()));
        }
    }
}

/// The greatest ends first.
impl<T: Timed> Ord for Wait<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |wait: &Self| (wait.at, wait.id);
        key(other).cmp(&key(self))
    }
}

impl<T: Timed> PartialOrd for Wait<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Timed> PartialEq for Wait<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Timed> Eq for Wait<T> {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Abandoned(Arc<AtomicBool>);

    impl Timed for Abandoned {
        type Lease = Self;
        type Waiter = Self;

        fn of_lease(lease: Self) -> Self {
            lease
        }

        fn of_waiter(waiter: Arc<Self>) -> Self {
            (*waiter).clone()
        }

        fn id(&self) -> u64 {
            0
        }

        fn handle_timeout(&self, _: Timestamp) {}

        fn abandon(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_is_dropped_before_it_runs_abandons_everything() {
        let timers = Timers::<Abandoned>::new(Clock::system());
        let timed = Abandoned::default();
        let set = || timers.reschedule(0, None, Some(Timestamp::MAX), || timed.clone());
        assert!(set().is_ok());
        drop(Arc::clone(&timers).run());
        assert!(timed.0.load(Ordering::Relaxed));
        assert!(set().is_err());
    }

    #[test]
    fn a_task_that_has_called_back_keeps_nothing() {
        let timers = Timers::<Abandoned>::new(Clock::system());
        let timed = Abandoned::default();
        let set = timers.reschedule(0, None, Some(Timestamp::ZERO), || timed.clone());
        assert!(set.is_ok());
        let mut task = Box::pin(Arc::clone(&timers).run());
        // The task has called back, and lets other tasks run.
        assert!((&mut task).now_or_never().is_none());
        assert_eq!(Arc::strong_count(&timed.0), 1);
    }
}
