//! One task for every deadline: retries, extensions, the longest hold, the end of validity.

use std::{collections::BTreeMap, mem, sync::Arc};

use redlock_core::Timestamp;
use tokio::{sync::Notify, task::yield_now};

use crate::{
    Clock,
    engine::lease_cell::LeaseCell,
    sync::{Mutex, MutexGuard},
};

/// How many leases are looked after before other tasks get a turn.
const AT_ONCE: usize = 256;

/// The deadlines of all leases of one [`Redlock`](crate::Redlock).
///
/// Deadlines are set and cleared by whoever changes a lease, without waking the task; it is woken
/// only for a deadline that comes before the time it sleeps until.
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Clock,
    deadlines: Mutex<Deadlines>,
    earlier: Notify,
}

#[derive(Debug)]
struct Deadlines {
    /// By time, then by lease, of which each has one deadline at most.
    due: BTreeMap<(Timestamp, u64), Arc<LeaseCell>>,
    /// Those that were due and are being looked after.
    in_hand: Vec<Arc<LeaseCell>>,
    sleeping_until: Timestamp,
    /// The task has ended, or is about to.
    closed: bool,
}

/// The task is gone: nobody would call back.
pub(crate) struct TimersClosed;

impl Timers {
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
        })
    }

    /// Moves the deadline of a lease. The caller holds the lease's own lock.
    pub(crate) fn reschedule(
        &self,
        cell: &Arc<LeaseCell>,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<(), TimersClosed> {
        let mut deadlines = self.deadlines();
        if let Some(at) = from {
            deadlines.due.remove(&(at, cell.id()));
        }
        if let Some(at) = to {
            if deadlines.closed {
                return Err(TimersClosed);
            }
            deadlines.due.insert((at, cell.id()), Arc::clone(cell));
            if at < deadlines.sleeping_until {
                // Only once for a run of ever earlier deadlines.
                deadlines.sleeping_until = at;
                drop(deadlines);
                self.earlier.notify_one();
            }
        }
        Ok(())
    }

    /// Returns the leases that have a deadline, which is all but those that have ended.
    pub(crate) fn leases(&self) -> Vec<Arc<LeaseCell>> {
        let deadlines = self.deadlines();
        let all = deadlines.due.values().chain(&deadlines.in_hand);
        all.cloned().collect()
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.deadlines().closed = true;
        self.earlier.notify_one();
    }

    pub(crate) async fn run(self: Arc<Self>) {
        // Dropped with the runtime if not before.
        let _last_words = AbandonOnDrop(&self);
        let mut due = Vec::new();
        loop {
            let now = self.clock.now();
            let (next, done) = {
                let mut deadlines = self.deadlines();
                if deadlines.closed {
                    return;
                }
                deadlines.take_due(now, &mut due);
                // They may be the last to know of their leases, which must not end under this lock.
                let done = mem::replace(&mut deadlines.in_hand, due.clone());
                let first = deadlines.due.keys().next();
                deadlines.sleeping_until = first.map_or(Timestamp::MAX, |&(at, _)| at);
                (deadlines.sleeping_until, done)
            };
            drop(done);
            if !due.is_empty() {
                for cell in due.drain(..) {
                    cell.handle_timeout(now);
                }
                // They have set new deadlines meanwhile. Others may have a turn in between.
                yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.earlier.notified() => {}
                () = self.clock.sleep_until(next), if next < Timestamp::MAX => {}
            }
        }
    }

    fn deadlines(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines.lock()
    }
}

/// Ends every lease when the task ends: without it nobody who waits would ever be told.
struct AbandonOnDrop<'a>(&'a Timers);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
        for cell in self.0.leases() {
            cell.abandon();
        }
    }
}

impl Deadlines {
    fn take_due(&mut self, now: Timestamp, into: &mut Vec<Arc<LeaseCell>>) {
        while into.len() < AT_ONCE
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            into.push(entry.remove());
        }
    }
}
