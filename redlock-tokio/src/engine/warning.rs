//! Warnings that hundreds of locks would log at the same moment.

use std::{fmt, time::Duration};

use redlock_core::Timestamp;

use crate::{
    log,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The shortest time between two warnings.
const PAUSE: Duration = Duration::from_secs(10);

/// A warning that is logged at most once every ten seconds, however many reasons there are.
#[derive(Debug, Default)]
pub(crate) struct Warning(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Timestamp>,
    withheld: u64,
}

impl Warning {
    /// Returns how many warnings were withheld since the last one, or `None` if this one is withheld too.
    pub(crate) fn due(&self, now: Timestamp) -> Option<u64> {
        let mut state = self.0.lock();
        let is_due = state
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            state.last = Some(now);
            Some(std::mem::take(&mut state.withheld))
        } else {
            state.withheld += 1;
            None
        }
    }
}

/// A time in which no lock can be acquired because of the nodes. Its beginning and its end are logged, and a
/// reminder at most every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    warning: Warning,
    is_logged: AtomicBool,
}

impl Outage {
    /// Notes that a lock could not be acquired because of the nodes.
    pub(crate) fn note_failure(&self, now: Timestamp, error: &dyn fmt::Display) {
        if let Some(withheld) = self.warning.due(now) {
            self.is_logged.store(true, Ordering::Relaxed);
            log::warn!(%error, withheld, "no lock can be acquired");
        }
    }

    /// Notes that a lock was acquired.
    pub(crate) fn note_success(&self) {
        // Read first, because every lock comes this way, and a read is cheaper.
        if self.is_logged.load(Ordering::Relaxed) && self.is_logged.swap(false, Ordering::Relaxed) {
            log::info!("a lock was acquired, so the outage is over");
        }
    }
}
