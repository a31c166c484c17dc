//! Guards that no user has any more: moved out of their runtime, or forgotten.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use super::kept::Kept;
use crate::host::Host;

/// What becomes of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is dropped before the last shutdown, or after a runtime that ends before.
    MovedOut,
    /// Nobody drops it while its lock is held, as after `std::mem::forget`.
    Forgotten,
}

/// The guards that no user has any more. Clones are handles of the same list.
#[derive(Clone, Default)]
pub(crate) struct Outliving(Arc<Mutex<Vec<(Fate, Kept)>>>);

/// The forgotten guards of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// Those whose locks are held.
    pub(crate) held: usize,
    pub(crate) all: usize,
}

impl Outliving {
    pub(crate) fn push(&self, fate: Fate, guard: Kept) {
        self.entries().push((fate, guard));
    }

    /// Takes the guards of a process of which this is true. The caller drops them outside of the lock of the list.
    pub(crate) fn take(
        &self,
        host: &Arc<Host>,
        is_wanted: impl Fn(Fate, &Kept) -> bool,
    ) -> Vec<Kept> {
        let mut entries = self.entries();
        let (taken, others) = mem::take(&mut *entries)
            .into_iter()
            .partition::<Vec<_>, _>(|(fate, it)| it.is_of(host) && is_wanted(*fate, it));
        *entries = others;
        taken.into_iter().map(|(_, it)| it).collect()
    }

    /// Counts the forgotten guards of a process.
    pub(crate) fn forgotten(&self, host: &Arc<Host>) -> Forgotten {
        let entries = self.entries();
        let is_forgotten = |(fate, it): &&(Fate, Kept)| *fate == Fate::Forgotten && it.is_of(host);
        let (ended, held): (Vec<_>, Vec<_>) = entries
            .iter()
            .filter(is_forgotten)
            .partition(|(_, it)| it.view().has_ended_by_itself());
        Forgotten {
            held: held.len(),
            all: held.len() + ended.len(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<(Fate, Kept)>> {
        self.0.lock().expect("no code panics under this lock")
    }
}
