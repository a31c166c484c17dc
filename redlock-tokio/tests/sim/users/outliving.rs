//! Guards that no user has any more: moved out of their runtime, or forgotten.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::host::Host;

/// A guard that no user has any more.
pub(crate) trait Outlives: Send {
    /// Returns whether the lock has ended by itself.
    fn has_ended_by_itself(&self) -> bool;

    /// Returns what the guard says after the end of its runtime that must not be.
    fn contradiction_after_runtime(&self) -> Option<String>;
}

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
pub(crate) struct Outliving(Arc<Mutex<Vec<Entry>>>);

struct Entry {
    host: Arc<Host>,
    fate: Fate,
    guard: Box<dyn Outlives>,
}

/// The forgotten guards of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// Those whose locks are held.
    pub(crate) held: usize,
    pub(crate) all: usize,
}

impl Outliving {
    pub(crate) fn push(&self, host: &Arc<Host>, fate: Fate, guard: impl Outlives + 'static) {
        let entry = Entry {
            host: Arc::clone(host),
            fate,
            guard: Box::new(guard),
        };
        self.entries().push(entry);
    }

    /// Takes the guards of a process.
    pub(crate) fn take(&self, host: &Arc<Host>) -> Vec<Box<dyn Outlives>> {
        self.take_if(host, |_| true)
    }

    /// Takes the guards of a process that are not forgotten.
    pub(crate) fn take_moved_out(&self, host: &Arc<Host>) -> Vec<Box<dyn Outlives>> {
        self.take_if(host, |it| it.fate == Fate::MovedOut)
    }

    /// Takes the guards of a process whose locks have ended by themselves.
    pub(crate) fn take_ended(&self, host: &Arc<Host>) -> Vec<Box<dyn Outlives>> {
        self.take_if(host, |it| it.guard.has_ended_by_itself())
    }

    /// Counts the forgotten guards of a process.
    pub(crate) fn forgotten(&self, host: &Arc<Host>) -> Forgotten {
        let entries = self.entries();
        let of_host = entries.iter().filter(|it| Arc::ptr_eq(&it.host, host));
        let forgotten = of_host.filter(|it| it.fate == Fate::Forgotten);
        let (ended, held): (Vec<_>, Vec<_>) =
            forgotten.partition(|it| it.guard.has_ended_by_itself());
        Forgotten {
            held: held.len(),
            all: held.len() + ended.len(),
        }
    }

    /// The guards are dropped outside of the lock of the list.
    fn take_if(
        &self,
        host: &Arc<Host>,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<Box<dyn Outlives>> {
        let mut entries = self.entries();
        let (taken, others) = mem::take(&mut *entries)
            .into_iter()
            .partition::<Vec<_>, _>(|it| Arc::ptr_eq(&it.host, host) && is_wanted(it));
        *entries = others;
        taken.into_iter().map(|it| it.guard).collect()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().expect("no code panics under this lock")
    }
}
