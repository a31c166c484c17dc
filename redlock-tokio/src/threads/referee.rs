use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use super::world::{Handed, Visit};
use crate::{Acquisition, Key, LockError, LockGuard};

/// Checks that no two tasks hold one key.
///
/// It is told by the holders. In the scenarios that use it, no lock can be lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Referee(Arc<Mutex<HashSet<Key>>>);

impl Referee {
    /// Works under a lock, and drops the guard.
    pub(super) fn visit(&self, outcome: Result<LockGuard, LockError>) -> Visit {
        let guard = outcome?;
        self.enter(&guard);
        let handed = handed(&guard);
        assert!(guard.is_valid(), "a lock that was just given out");
        self.leave(&guard);
        drop(guard);
        Ok(handed)
    }

    pub(super) fn enter(&self, guard: &LockGuard) {
        let mut held = self.0.lock().unwrap();
        for key in guard.keys() {
            assert!(held.insert(key.clone()), "two holders at once");
        }
    }

    /// Must be called before the guard is dropped.
    pub(super) fn leave(&self, guard: &LockGuard) {
        let mut held = self.0.lock().unwrap();
        for key in guard.keys() {
            held.remove(key);
        }
    }
}

/// Returns where a lock came from.
pub(super) fn handed(guard: &LockGuard) -> Handed {
    match guard.acquisition() {
        Acquisition::HandedOver { .. } | Acquisition::Joined { .. } => Handed::Over,
        Acquisition::Granted { .. } => Handed::ByNodes,
    }
}
