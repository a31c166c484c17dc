//! Who waits for a lock within this process: one line for each key, first come, first served.
//!
//! Only the first of a line asks the nodes, so that a hundred waiters cost no more than one.

mod line;
mod recent;
mod terms;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redlock_core::Timestamp;

use self::{line::Line, recent::Recent};
pub(crate) use self::{line::Next, terms::Terms};
use crate::Key;

/// The lines of one [`Redlock`](crate::Redlock). There is one for each key that is held or wanted, and
/// it goes with the last who wants it.
#[derive(Debug)]
pub(crate) struct Queue<T>(Mutex<Lines<T>>);

#[derive(Debug)]
struct Lines<T> {
    by_key: HashMap<Key, Line<T>>,
    waiting: usize,
    max_waiting: usize,
    recent: Recent,
}

/// What became of joining a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// Nobody else is there.
    Turn {
        /// Whether to let other processes have a try first.
        stands_back: bool,
    },
    Waiting,
}

/// Why somebody cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others are there, and no time to wait.
    Busy,
    /// Too many wait already.
    Full { waiting: usize, limit: usize },
    /// The time to wait is not likely to be enough.
    Hopeless { waiting: usize, estimate: Duration },
}

impl<T: Clone> Queue<T> {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self(Mutex::new(Lines {
            by_key: HashMap::new(),
            waiting: 0,
            max_waiting,
            recent: Recent::new(),
        }))
    }

    /// Joins the line for a key.
    pub(crate) fn join(
        &self,
        key: &Key,
        id: u64,
        now: Timestamp,
        who: T,
        terms: &Terms,
    ) -> Result<Joined, Refusal> {
        let mut lines = self.lines();
        let Lines {
            by_key,
            waiting,
            max_waiting,
            recent,
        } = &mut *lines;
        let line = match by_key.entry(key.clone()) {
            Entry::Vacant(vacant) => {
                let streak = recent.take(key, now);
                let goes_on = streak.filter(|it| it.may_go_on(now, terms));
                vacant.insert(Line::new(id, who, goes_on));
                return Ok(Joined::Turn {
                    stands_back: streak.is_some() && goes_on.is_none() && !terms.wait.is_zero(),
                });
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        if terms.wait.is_zero() {
            return Err(Refusal::Busy);
        }
        for (waiting, limit) in [
            (line.waiting(), terms.max_waiters),
            (*waiting, *max_waiting),
        ] {
            if waiting >= limit {
                return Err(Refusal::Full { waiting, limit });
            }
        }
        if terms.refuses_hopeless
            && let Some(estimate) = line.estimate()
            && estimate > terms.wait
        {
            let waiting = line.waiting();
            return Err(Refusal::Hopeless { waiting, estimate });
        }
        line.push(id, who);
        *waiting += 1;
        Ok(Joined::Waiting)
    }

    /// Leaves the line for a key, after having held the lock from `held` on, if at all. Returns who has
    /// the turn now, if it has changed hands.
    pub(crate) fn leave(
        &self,
        key: &Key,
        id: u64,
        now: Timestamp,
        held: Option<Timestamp>,
        terms: &Terms,
    ) -> Option<Next<T>> {
        let mut lines = self.lines();
        let line = lines.by_key.get_mut(key)?;
        if !line.has_turn(id) {
            if line.remove(id) {
                lines.waiting -= 1;
            }
            return None;
        }
        let next = line.advance(now, held, terms);
        if next.is_some() {
            lines.waiting -= 1;
        } else if let Some(line) = lines.by_key.remove(key)
            && let Some(held) = held
        {
            lines.recent.note(key, line.end_streak(held), now);
        }
        next
    }

    /// Takes the next out of the line to hand the lock over to, if who has the turn, and holds the lock
    /// since `held`, may do so. The turn stays where it is.
    pub(crate) fn heir(
        &self,
        key: &Key,
        now: Timestamp,
        held: Timestamp,
        terms: &Terms,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let mut lines = self.lines();
        let heir = lines.by_key.get_mut(key)?.heir(now, held, terms, fits)?;
        lines.waiting -= 1;
        Some(heir)
    }

    /// Returns who has the turn for a key.
    pub(crate) fn turn(&self, key: &[u8]) -> Option<T> {
        let lines = self.lines();
        lines.by_key.get(key).map(|line| line.turn().clone())
    }

    /// Returns who has a turn, for all keys.
    pub(crate) fn turns(&self) -> Vec<T> {
        let lines = self.lines();
        lines
            .by_key
            .values()
            .map(|line| line.turn().clone())
            .collect()
    }

    /// Returns how many keys are held or wanted, and how many wait for their turn.
    pub(crate) fn len(&self) -> (usize, usize) {
        let lines = self.lines();
        (lines.by_key.len(), lines.waiting)
    }

    /// Returns how many wait for a key, and how long one more would, as far as can be told.
    pub(crate) fn outlook(&self, key: &Key) -> (usize, Option<Duration>) {
        let lines = self.lines();
        let line = lines.by_key.get(key);
        line.map_or((0, None), |line| (line.waiting(), line.estimate()))
    }

    fn lines(&self) -> MutexGuard<'_, Lines<T>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
