//! One task for every deadline: retries, extensions, the longest hold, the end of validity, the end of a wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use redlock_core::Timestamp;
use tokio::task::yield_now;

use super::requests::{Client, RequestId};
use crate::{
    Clock, foreign,
    sync::{
        Notify,
        atomic::{self, AtomicBool},
    },
};

/// How many timeouts are handled before other tasks may run.
const MAX_AT_ONCE: usize = 256;

/// The deadlines of all requests.
pub(crate) struct Deadlines {
    /// By time, then by arrival. Each has one deadline at most.
    due: BTreeMap<(Timestamp, RequestId), ()>,
    sleeping_until: Timestamp,
}

impl Deadlines {
    pub(crate) const fn new() -> Self {
        Self {
            due: BTreeMap::new(),
            // As if asleep until something is due.
            sleeping_until: Timestamp::MAX,
        }
    }

    /// Moves a deadline. Returns whether the task must be woken: only if the deadline comes before the time until which it
    /// sleeps. Once the task has ended, no request is left that waits for one.
    pub(crate) fn reschedule(
        &mut self,
        id: RequestId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> bool {
        if let Some(at) = from {
            self.due.remove(&(at, id));
        }
        let Some(at) = to else { return false };
        self.due.insert((at, id), ());
        let wakes = at < self.sleeping_until;
        if wakes {
            // A run of ever earlier deadlines wakes the task once.
            self.sleeping_until = at;
        }
        wakes
    }

    /// Returns how many have a deadline.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn count(&self) -> usize {
        self.due.len()
    }

    /// Returns some of those that are due, and forgets their deadlines. Notes when the task is called next.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<RequestId> {
        let mut due = Vec::new();
        while due.len() < MAX_AT_ONCE
            && let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            due.push(entry.remove_entry().0.1);
        }
        let first = self.due.keys().next();
        self.sleeping_until = first.map_or(Timestamp::MAX, |(at, _)| *at);
        due
    }

    fn next(&self) -> Timestamp {
        self.sleeping_until
    }
}

/// The task that calls the requests of one [`Redlock`](crate::Redlock) at their deadlines.
pub(crate) struct Timers {
    earlier: Notify,
    is_closed: AtomicBool,
}

impl Timers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            earlier: Notify::new(),
            is_closed: false.into(),
        })
    }

    /// Returns whether the task has ended, so that no lock can be acquired or renewed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(atomic::Ordering::SeqCst)
    }

    /// Has the task look at the deadlines again.
    pub(crate) fn wake(&self) {
        self.earlier.notify_one();
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, atomic::Ordering::SeqCst);
        self.wake();
    }

    /// Returns the task. Dropping it abandons everything, even if it never ran.
    pub(crate) fn run(
        self: &Arc<Self>,
        client: Weak<Client>,
        clock: Clock,
    ) -> impl Future<Output = ()> + Send + use<> {
        // The runtime may end before it polls the task for the first time.
        let task = AbandonOnDrop {
            timers: Arc::clone(self),
            client,
            clock,
        };
        async move { task.call_back().await }
    }
}

/// Abandons everything when the task ends. Without the task, some waiters would wait for ever.
struct AbandonOnDrop {
    timers: Arc<Timers>,
    client: Weak<Client>,
    clock: Clock,
}

impl AbandonOnDrop {
    async fn call_back(&self) {
        loop {
            let now = self.clock.now();
            let next = {
                let Some(client) = self.client.upgrade().filter(|_| !self.timers.is_closed())
                else {
                    return;
                };
                // The code of a clock may panic.
                let due = foreign::call(|| client.handle_due(now));
                (due != Some(true)).then(|| client.engine.lock().deadlines.next())
            };
            let Some(next) = next else {
                // They have set new deadlines. Other tasks may run before these are looked at.
                yield_now().await;
                continue;
            };
            tokio::select! {
                biased; // Any order would do: after either, the next round does all that is due.
                () = self.timers.earlier.notified() => {}
                () = self.clock.sleep_until(next), if next < Timestamp::MAX => {}
            }
        }
    }
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.timers.close();
        if let Some(client) = self.client.upgrade() {
            client.abandon_all();
        }
    }
}
