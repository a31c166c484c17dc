//! Guards that no user has any more: moved out of their runtime, or forgotten.

use std::sync::Arc;

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

/// The guards that no user has any more.
#[derive(Default)]
pub(crate) struct Outliving(Vec<(Fate, Kept)>);

/// The forgotten guards of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// Those whose locks are held.
    pub(crate) held: usize,
    pub(crate) all: usize,
}

impl Outliving {
    pub(crate) fn push(&mut self, fate: Fate, guard: Kept) {
        self.0.push((fate, guard));
    }

    /// Takes the guards of a process of which this is true. The caller drops them outside of the lock of the list.
    pub(crate) fn take(
        &mut self,
        host: &Arc<Host>,
        is_wanted: impl Fn(Fate, &Kept) -> bool,
    ) -> Vec<Kept> {
        let is_taken = |(fate, it): &mut (Fate, Kept)| it.is_of(host) && is_wanted(*fate, it);
        let taken = self.0.extract_if(.., is_taken);
        taken.map(|(_, it)| it).collect()
    }

    /// Counts the forgotten guards of a process.
    pub(crate) fn forgotten(&self, host: &Arc<Host>) -> Forgotten {
        let is_forgotten = |(fate, it): &&(Fate, Kept)| *fate == Fate::Forgotten && it.is_of(host);
        let (ended, held): (Vec<_>, Vec<_>) = self
            .0
            .iter()
            .filter(is_forgotten)
            .partition(|(_, it)| it.view().has_ended_by_itself());
        Forgotten {
            held: held.len(),
            all: held.len() + ended.len(),
        }
    }
}
