//! Warnings that hundreds of locks would give at the same moment.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use redlock_core::Timestamp;

use crate::sync::Mutex;

/// How long a warning is not repeated.
const PAUSE: Duration = Duration::from_secs(10);

/// A warning that is given at most once in a while, however many reasons there are.
#[derive(Debug, Default)]
pub(crate) struct Warning(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Timestamp>,
    withheld: u64,
}

impl Warning {
    /// Returns whether to warn now, and then how often that was withheld since the last time.
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

/// A time without locks, whoever asks for one: told of at its beginning, now and then, and at its end.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    warning: Warning,
    is_told: AtomicBool,
}

impl Outage {
    /// Notes that a lock could not be had because of the nodes.
    pub(crate) fn note_failure(&self, now: Timestamp, error: &dyn fmt::Display) {
        if let Some(withheld) = self.warning.due(now) {
            self.is_told.store(true, Ordering::Relaxed);
            tracing::warn!(%error, withheld, "no lock can be had");
        }
    }

    /// Notes that a lock was had.
    pub(crate) fn note_success(&self) {
        // Read first: this is on the way of every lock.
        if self.is_told.load(Ordering::Relaxed) && self.is_told.swap(false, Ordering::Relaxed) {
            tracing::info!("locks can be had again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_reasons_make_one_warning() {
        let warning = Warning::default();
        let start = Timestamp::ZERO;
        assert_eq!(warning.due(start), Some(0));
        for _ in 0..100_000 {
            assert_eq!(warning.due(start), None);
        }
        let later = start.saturating_add(PAUSE);
        assert_eq!(warning.due(later), Some(100_000));
        assert_eq!(warning.due(later), None);
    }
}
