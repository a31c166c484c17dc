use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use super::world::{Handed, Visit};
use crate::{Acquisition, Key, LockError, LockGuard};

/// Checks that no two tasks hold one key, or one permit.
///
/// It is told by the holders. In the scenarios that use it, no lock can be lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Referee(Arc<Mutex<HashSet<Name>>>);

/// A key, and the slot of a permit.
type Name = (Key, Option<usize>);

impl Referee {
    /// Works under a lock, and drops the guard.
    pub(super) fn visit(&self, outcome: Result<LockGuard, LockError>) -> Visit {
        let guard = outcome?;
        self.enter(&guard);
        let handed = match guard.acquisition() {
            Acquisition::HandedOver { .. } | Acquisition::Joined { .. } => Handed::Over,
            Acquisition::Granted { .. } => Handed::ByNodes,
        };
        assert!(guard.is_valid(), "a lock that was just given out");
        self.exit(&guard);
        drop(guard);
        Ok(handed)
    }

    pub(super) fn enter(&self, guard: &LockGuard) {
        let names = names(guard);
        let mut held = self.0.lock().unwrap();
        for name in names {
            assert!(held.insert(name), "two holders at once");
        }
    }

    /// Must be called before the guard is dropped.
    pub(super) fn exit(&self, guard: &LockGuard) {
        let names = names(guard);
        let mut held = self.0.lock().unwrap();
        for name in &names {
            held.remove(name);
        }
    }
}

/// Returns what a guard has. Another thread may run meanwhile, so the mutex must not be locked.
fn names(guard: &LockGuard) -> Vec<Name> {
    let slot = guard.slot();
    guard.keys().map(|key| (key.clone(), slot)).collect()
}
