//! What is to be done once the engine is free.

use std::{mem, sync::Arc, task::Waker};

use redlock_core::{NodeSet, Timestamp, Token};

use smallvec::SmallVec;

use super::{Client, Cx, Engine, request::Request};
use crate::{foreign, key::KeySet, observer::Event, sync::MutexGuard};

/// What a change of the engine leads to outside of its mutex.
#[derive(Default)]
pub(super) struct Outputs {
    pub(super) wakers: SmallVec<[Waker; 1]>,
    /// The lanes that have something to send.
    pub(super) lanes: NodeSet,
    lines: Vec<Box<dyn FnOnce() + Send>>,
    /// The timers have slept for too long.
    pub(super) wakes_timers: bool,
    /// What has ended. It may have the last handle of something.
    pub(super) forgotten: SmallVec<[Box<Request>; 1]>,
    pub(super) client: Option<Arc<Client>>,
}

/// A lock as lines of the log show it.
pub(super) struct LogLine {
    pub(super) label: Option<&'static str>,
    keys: Option<KeySet>,
    pub(super) token: Token,
}

impl Outputs {
    /// Adds a line of the log.
    #[cold]
    pub(super) fn log(&mut self, line: impl FnOnce() + Send + 'static) {
        self.lines.push(Box::new(line));
    }

    fn is_empty(&self) -> bool {
        self.wakers.is_empty()
            && self.lanes.is_empty()
            && self.lines.is_empty()
            && !self.wakes_timers
            && self.forgotten.is_empty()
            && self.client.is_none()
    }
}

impl Client {
    /// Changes the engine, and does what follows from the change.
    pub(super) fn change<T>(
        self: &Arc<Self>,
        now: Timestamp,
        change: impl FnOnce(&mut Engine, Cx<'_>) -> T,
    ) -> T {
        let cx = Cx { client: self, now };
        let mut engine = self.engine.lock();
        let result = change(&mut engine, cx);
        engine.carry_out(cx);
        let tells = !engine.events.is_empty() && !mem::replace(&mut engine.is_telling, true);
        if engine.out.is_empty() && !tells {
            return result;
        }
        let out = mem::take(&mut engine.out);
        if out.lanes.is_empty() {
            drop(engine);
        } else {
            wake_lanes(engine, out.lanes);
        }
        if out.wakes_timers {
            self.timers.wake();
        }
        for waker in out.wakers {
            // If it panics, others are woken all the same.
            foreign::call(|| waker.wake());
        }
        for line in out.lines {
            foreign::call(line);
        }
        if tells {
            self.tell_observers();
        }
        drop((out.forgotten, out.client));
        result
    }

    /// Tells observers of an event, after those that came before.
    pub(crate) fn tell(self: &Arc<Self>, event: Event) {
        self.change(Timestamp::ZERO, |engine, _| engine.events.push(event));
    }

    /// Tells observers of all events, also of those that come meanwhile.
    #[cold]
    fn tell_observers(&self) {
        loop {
            let events = {
                let mut engine = self.engine.lock();
                let events = mem::take(&mut engine.events);
                engine.is_telling = !events.is_empty();
                events
            };
            if events.is_empty() {
                return;
            }
            for event in events {
                self.observers.tell(&event);
            }
        }
    }
}

/// Wakes lanes that wait for something to send, once the engine is free.
fn wake_lanes(mut engine: MutexGuard<'_, Engine>, lanes: NodeSet) {
    let outboxes = &mut engine.outboxes;
    let lanes = lanes.iter();
    let lanes = lanes.filter_map(|node| outboxes[node.index()].lane_to_wake());
    let lanes: SmallVec<[Waker; 8]> = lanes.collect();
    drop(engine);
    lanes.into_iter().for_each(Waker::wake);
}

impl Request {
    /// Returns what lines of the log show of the lock.
    pub(super) fn log_line(&self, cx: Cx<'_>) -> LogLine {
        LogLine {
            label: self.label(),
            keys: cx.client.logs_keys.then(|| self.keys.clone()),
            token: self.lease.token(),
        }
    }
}

impl LogLine {
    /// Returns the keys, if they may be logged.
    pub(super) fn keys(&self) -> Option<impl tracing::Value> {
        self.keys
            .as_ref()
            .map(|keys| tracing::field::debug(keys.for_log()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        task::Wake,
    };

    use super::*;
    use crate::Redlock;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, as it should here");
        }
    }

    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn all_are_woken_if_one_of_them_panics() {
        let redlock = Redlock::embedded().await.expect("nodes in memory");
        let counts = Arc::new(Counts(AtomicU32::new(0)));
        let counting = || Arc::clone(&counts).into();
        let wakers: [Waker; 4] = [counting(), Arc::new(Panics).into(), counting(), counting()];
        redlock.client().change(Timestamp::ZERO, |engine, _| {
            engine.out.wakers.extend(wakers);
        });
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }
}
