//! Who waits for a lock within this process: one line for each key, first come, first served.
//!
//! Only the first of a line asks the nodes, so that a hundred waiters cost no more than one. Who wants
//! several keys waits in the lines of all of them, and has his turn when nobody has any of them; until
//! then he keeps nobody from those that are free, or two could wait for each other for ever.

mod line;
mod recent;
mod terms;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redlock_core::Timestamp;

pub(crate) use self::terms::Terms;
use self::{
    line::{Line, Waiter},
    recent::Recent,
};
use crate::{Key, key_set::KeySet};

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

/// Who has the turn now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next<T> {
    pub(crate) who: T,
    /// Whether to let other processes have a try first.
    pub(crate) stands_back: bool,
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

    /// Takes the turn for all of these keys, if nobody has one of them; otherwise waits in their lines.
    pub(crate) fn join(
        &self,
        keys: &KeySet,
        id: u64,
        now: Timestamp,
        who: &T,
        terms: &Terms,
    ) -> Result<Joined, Refusal> {
        let mut lines = self.lines();
        let Lines {
            by_key,
            waiting,
            max_waiting,
            recent,
        } = &mut *lines;
        let is_busy = |key: &&Key| by_key.get(*key).is_some_and(|line| line.turn().is_some());
        let Some(busy) = keys.iter().find(is_busy) else {
            let mut stands_back = false;
            for key in keys.iter() {
                let line = by_key.entry(key.clone()).or_insert_with(|| {
                    let streak = recent.take(key, now);
                    let goes_on = streak.filter(|it| it.may_go_on(now, terms));
                    stands_back |= streak.is_some() && goes_on.is_none() && !terms.wait.is_zero();
                    Line::new(goes_on)
                });
                line.give_turn(id, who.clone());
            }
            return Ok(Joined::Turn { stands_back });
        };
        if terms.wait.is_zero() {
            return Err(Refusal::Busy);
        }
        if let Some(line) = by_key.get(busy) {
            let of_key = (line.waiting(), terms.max_waiters);
            for (waiting, limit) in [of_key, (*waiting, *max_waiting)] {
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
        }
        let waiter = Waiter {
            id,
            who: who.clone(),
            keys: keys.clone(),
        };
        for key in keys.iter() {
            let line = by_key.entry(key.clone());
            line.or_insert_with(|| Line::new(None)).push(waiter.clone());
        }
        *waiting += 1;
        Ok(Joined::Waiting)
    }

    /// Leaves the lines for these keys, after having held the lock from `held` on, if at all. Returns
    /// those who have the turn now.
    pub(crate) fn leave(
        &self,
        keys: &KeySet,
        id: u64,
        now: Timestamp,
        held: Option<Timestamp>,
        terms: &Terms,
    ) -> Vec<Next<T>> {
        let mut lines = self.lines();
        let lines = &mut *lines;
        let mut has_next = false;
        let mut was_waiting = false;
        let mut stands_back = false;
        for key in keys.iter() {
            let Entry::Occupied(mut line) = lines.by_key.entry(key.clone()) else {
                continue;
            };
            match line.get_mut().end_turn(id, now, held, terms) {
                Some(next_stands_back) => {
                    has_next |= !line.get().is_empty();
                    stands_back |= next_stands_back;
                }
                None => was_waiting |= line.get_mut().remove(id),
            }
            if line.get().is_empty()
                && let Some(streak) = line.remove().last_streak().filter(|_| held.is_some())
            {
                lines.recent.note(key, streak, now);
            }
        }
        lines.waiting -= usize::from(was_waiting);
        if !has_next {
            return Vec::new();
        }
        // After all of them are free, since one who waits may want several.
        let next = keys.iter().filter_map(|key| lines.advance(key));
        next.map(|who| Next { who, stands_back }).collect()
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
        // As it is most often: there is no need to look for the line.
        if lines.waiting == 0 {
            return None;
        }
        let may_hand_over = lines.by_key.get_mut(key)?.may_hand_over(held, now, terms);
        let first = lines.first(key, Some(key)).filter(|_| may_hand_over)?;
        if first.keys.has_several() || !fits(&first.who) {
            return None;
        }
        let line = lines.by_key.get_mut(key)?;
        line.remove(first.id);
        line.note_handover(held, now);
        lines.waiting -= 1;
        Some(first.who)
    }

    /// Returns who has the turn for a key.
    pub(crate) fn turn(&self, key: &[u8]) -> Option<T> {
        self.lines().by_key.get(key)?.turn().cloned()
    }

    /// Returns who has a turn, for each key.
    pub(crate) fn turns(&self) -> Vec<T> {
        let lines = self.lines();
        let turns = lines.by_key.values().filter_map(Line::turn);
        turns.cloned().collect()
    }

    /// Returns how many keys are held or wanted, and how many wait for their turn.
    pub(crate) fn len(&self) -> (usize, usize) {
        let lines = self.lines();
        (lines.by_key.len(), lines.waiting)
    }

    /// Returns how long one more would wait for a key, as far as can be told.
    pub(crate) fn estimate(&self, key: &Key) -> Option<Duration> {
        self.lines().by_key.get(key)?.estimate()
    }

    fn lines(&self) -> MutexGuard<'_, Lines<T>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Lines<T> {
    /// Gives the turn for a key that nobody has to the first who may have it.
    fn advance(&mut self, key: &Key) -> Option<T> {
        if self.by_key.get(key)?.turn().is_some() {
            return None;
        }
        let next = self.first(key, None)?;
        for key in next.keys.iter() {
            if let Some(line) = self.by_key.get_mut(key) {
                line.remove(next.id);
                line.give_turn(next.id, next.who.clone());
            }
        }
        self.waiting -= 1;
        Some(next.who)
    }

    /// Returns the first in a line who is kept from no key by anybody, but from `free` perhaps.
    fn first(&self, key: &Key, free: Option<&Key>) -> Option<Waiter<T>> {
        let has_turn = |key: &Key| self.by_key.get(key).is_some_and(|it| it.turn().is_some());
        let is_free = |key: &Key| Some(key) == free || !has_turn(key);
        let line = self.by_key.get(key)?;
        line.first(|waiter| waiter.keys.iter().all(is_free))
    }
}

#[cfg(test)]
mod tests;
