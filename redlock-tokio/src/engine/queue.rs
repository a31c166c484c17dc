//! The waiters for locks within this process: one queue for each key, first come, first served.
//!
//! Only the first plain lock in a queue asks the nodes, so a hundred waiters cost no more than one. [`Beside`](beside::Beside)
//! says how many readers and permits may ask at once. A waiter for several keys waits in the queues of all of them, and has
//! its turn when all are free. Until then other waiters overtake it, and once it is the first at all of them, for half of
//! the time only: see [`kept_keys`].

mod beside;
mod kept_keys;
mod key_queue;
mod line;
mod outcome;
mod past;
mod shared;

use std::{
    collections::{BTreeMap, hash_map},
    time::Duration,
};

use redlock_core::{Slot, Timestamp};

pub(crate) use self::{
    beside::Role,
    key_queue::Pace,
    outcome::{FollowUp, JoinOutcome, Refusal, Succession},
};
use self::{
    kept_keys::{Availability, Choice, FEW, KeyQueues},
    key_queue::KeyQueue,
    outcome::admit,
    past::Recent,
};
use crate::{
    Key,
    engine::shrink,
    key::{KeySet, SlotKeys},
    options::QueuePolicy,
    random::Random,
};

/// The wait queues of one [`Redlock`](crate::Redlock). There is one for each key that is held or wanted.
#[derive(Clone)]
pub(crate) struct Queue<T> {
    keys: Keys<T>,
    recent: Recent,
    waiting: usize,
    max_waiting: usize,
}

/// The queues by key. A semaphore and a lock of the same key have nothing to do with each other.
#[derive(Clone)]
struct Keys<T> {
    locks: KeyQueues<T>,
    semaphores: KeyQueues<T>,
}

/// A request in the queues of its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePlace<'a> {
    pub(crate) keys: &'a KeySet,
    pub(crate) role: Role,
    pub(crate) arrival: Arrival,
}

/// The locks that are held or wanted within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatus {
    /// How many keys are held or wanted.
    pub keys: usize,
    /// How many requests wait behind another request of this process. A writer that asks the nodes beside readers is not among
    /// them.
    pub waiting: usize,
}

/// A place in the order of arrival: the smaller one came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arrival(u64);

impl Arrival {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

#[cfg(feature = "test-util")]
/// How many entries the tables of a queue have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueTables {
    /// The keys that have a queue.
    pub(crate) keys: usize,
    /// The waiters, as the queue counts them.
    pub(crate) waiting: usize,
    /// The waiters for the key that has most of them.
    pub(crate) waiting_for_one_key: usize,
    /// The waiters for several keys.
    pub(crate) several: usize,
}

impl<T: Clone> Queue<T> {
    pub(crate) fn new(max_waiting: usize, random: &Random) -> Self {
        Self {
            keys: Keys {
                locks: KeyQueues::new(),
                semaphores: KeyQueues::new(),
            },
            recent: Recent::new(random),
            waiting: 0,
            max_waiting,
        }
    }

    /// Takes the turn for all keys if they are free. Otherwise waits in their queues.
    ///
    /// # Errors
    ///
    /// Fails if the policy does not let it wait.
    pub(crate) fn join(
        &mut self,
        place: QueuePlace<'_>,
        now: Timestamp,
        policy: &QueuePolicy,
        request: &T,
    ) -> Result<JoinOutcome, Refusal> {
        let QueuePlace { keys, role, .. } = place;
        if role == Role::Adopter {
            let backs_off = self.begin(place, now, request, policy);
            return Ok(JoinOutcome::Turn { backs_off });
        }
        let of_role = self.keys.of(role);
        let until = now.saturating_add(policy.wait);
        // Most waiters want one key, which another lease has. (A writer that does not wait would only keep readers of its
        // process waiting.)
        if !keys.has_several()
            && let key = keys.first()
            && let Some(queue) = of_role.by_key.get_mut(key)
            && (!queue.may_begin(role, place.arrival)
                || (role == Role::Writer && policy.wait.is_zero() && !queue.is_free()))
        {
            let of_key = [queue.waiting()].into_iter();
            admit(of_key, self.waiting, self.max_waiting, policy)?;
            let past = || self.recent.take(key);
            queue.push((place.arrival, role), request.clone(), until, past);
            self.waiting += 1;
            return Ok(JoinOutcome::Waiting { look_at: None });
        }
        let look_at = match of_role.availability(keys, (place.arrival, role), now, None) {
            Availability::Available => {
                let backs_off = self.begin(place, now, request, policy);
                return Ok(JoinOutcome::Turn { backs_off });
            }
            Availability::Taken => None,
            Availability::Kept { until } => Some(until),
        };
        let of_keys = keys.iter().filter_map(|key| of_role.by_key.get(key));
        let of_keys = of_keys.map(KeyQueue::waiting);
        admit(of_keys, self.waiting, self.max_waiting, policy)?;
        self.waiting += 1;
        of_role.several += usize::from(keys.has_several());
        for key in keys.iter() {
            let past = || self.recent.take(key);
            let (queue, waiter) = (of_role.queue(key), request.clone());
            if keys.has_several() {
                queue.push_several(place.arrival, (keys.clone(), waiter), until, past);
            } else {
                queue.push((place.arrival, role), waiter, until, past);
            }
        }
        Ok(JoinOutcome::Waiting { look_at })
    }

    /// Leaves the queues of the keys, after having held the lock since `held`, if at all.
    #[must_use]
    pub(crate) fn leave(
        &mut self,
        place: QueuePlace<'_>,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Vec<FollowUp<T>> {
        let QueuePlace { keys, role, .. } = place;
        let own = place.arrival;
        let of_role = self.keys.of(role);
        let mut was_waiting = false;
        let mut has_waited = false;
        let mut backs_off = false;
        let mut others_wait = false;
        for key in keys.iter() {
            let hash_map::Entry::Occupied(mut entry) = of_role.by_key.entry(key.clone()) else {
                continue;
            };
            let queue = entry.get_mut();
            let next = queue.first();
            has_waited |= queue.beside().is_some_and(|it| it.waits_for_permit(own));
            if !queue.end_turn(own) {
                was_waiting |= queue.remove(own);
            } else if role.takes_turns() {
                backs_off |= match queue.past_mut() {
                    Some(past) => past.end_turn(now, held, policy, next),
                    None => self.recent.end_turn(key, now, held, policy),
                };
            }
            others_wait |= queue.waiting() > 0;
            if queue.is_empty()
                && let Some(past) = entry.remove().past()
            {
                self.recent.note(key, *past, now);
            }
        }
        shrink::map(&mut of_role.by_key);
        self.waiting -= usize::from(was_waiting);
        of_role.several -= usize::from(was_waiting && keys.has_several());
        if others_wait {
            // After all of them are free, because a waiter may want several.
            self.advance(role, keys, now, Pace::after(has_waited, backs_off))
        } else {
            Vec::new()
        }
    }

    /// Removes the next waiter for a key, for its holder since `held` to hand the lock or permit over to it. The turn stays
    /// where it is. Without one, the lock is to be released instead.
    pub(crate) fn take_successor(
        &mut self,
        place: QueuePlace<'_>,
        now: Timestamp,
        held: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&T) -> bool,
    ) -> Succession<T> {
        let (key, role) = (place.keys.first(), place.role);
        // Most often nobody waits, and there is no queue to look for.
        if self.waiting == 0 {
            return Succession::Nobody;
        }
        let keys = self.keys.of(role);
        if keys.several > 0 && !matches!(keys.choose(key, now, FEW), Choice::One) {
            return Succession::Nobody;
        }
        let Some(queue) = keys.by_key.get_mut(key) else {
            return Succession::Nobody;
        };
        let Some(next) = queue.successor(role, fits) else {
            return Succession::Nobody;
        };
        if role != Role::Lock {
            let since = queue.beside().and_then(|it| it.since(place.arrival));
            let is_short = |since| now.saturating_duration_since(since) < policy.streak;
            if !since.is_some_and(is_short) {
                return Succession::Nobody;
            }
        } else if !queue.may_hand_over(held, now, next, policy) {
            return Succession::StreakIsOver;
        }
        let Some((_, _, waiter)) = queue.pop() else {
            return Succession::Nobody;
        };
        let past = queue.past_mut().filter(|_| role == Role::Lock);
        let is_late = past.is_some_and(|past| {
            past.note_hold(held, now, policy);
            past.is_late(now)
        });
        self.waiting -= 1;
        Succession::Next { waiter, is_late }
    }

    /// Begins another streak of the holder of a key: no other process waits for it. Returns false if it is to be
    /// released all the same, for clients that poll, or for waiters for several keys.
    pub(crate) fn renew_streak(&mut self, key: &Key, now: Timestamp, policy: &QueuePolicy) -> bool {
        let queue = self.keys.locks.by_key.get_mut(key);
        let queue = queue.filter(|queue| queue.several().next().is_none());
        queue.is_some_and(|queue| queue.renew_streak(now, policy))
    }

    /// Returns for how long to leave a key free, once it is, for clients that poll.
    pub(crate) fn take_pause(&mut self, key: &Key) -> Duration {
        let queue = self.keys.locks.by_key.get_mut(key);
        match queue.and_then(KeyQueue::past_mut) {
            Some(past) => past.take_pause(),
            None => self.recent.take_pause(key),
        }
    }

    /// Returns all that have a turn, in order of arrival. A request for several keys is there once.
    pub(crate) fn turns(&self) -> impl Iterator<Item = T> + use<T> {
        self.turns_and_waiters().map(|(turn, _)| turn)
    }

    /// Likewise, with the number of requests that wait for the same key, or for the one of several that most want.
    pub(crate) fn turns_and_waiters(&self) -> impl Iterator<Item = (T, usize)> + use<T> {
        let mut turns = BTreeMap::new();
        for queue in self.keys.all() {
            for (arrival, turn) in queue.turns() {
                let first = || (turn.clone(), queue.waiting());
                let (_, most) = turns.entry(arrival).or_insert_with(first);
                *most = queue.waiting().max(*most);
            }
        }
        turns.into_values()
    }

    /// Returns all that have a turn for this key of a lock, or of a semaphore if that is the role.
    pub(crate) fn turns_of(&self, key: &Key, role: Role) -> Vec<T> {
        let queues = match role {
            Role::Permit(_) => &self.keys.semaphores,
            _ => &self.keys.locks,
        };
        let queue = queues.by_key.get(key).into_iter();
        let turns = queue.flat_map(KeyQueue::turns);
        turns.map(|(_, lease)| lease.clone()).collect()
    }

    /// Returns all that have a turn for the key of this name, and the slot, if the key is that of a permit.
    pub(crate) fn turns_at(&self, name: &[u8]) -> Vec<(T, Option<Slot>)> {
        let lock = self.keys.locks.by_key.get(name);
        let semaphore = SlotKeys::parse(name).and_then(|(semaphore, slot)| {
            let queue = self.keys.semaphores.by_key.get(semaphore)?;
            Some((queue, Some(slot)))
        });
        let queues = lock.map(|queue| (queue, None)).into_iter().chain(semaphore);
        let turns = queues.flat_map(|(queue, slot)| queue.turns().map(move |turn| (turn, slot)));
        let turns = turns.map(|((_, lease), slot)| (lease.clone(), slot));
        turns.collect()
    }

    pub(crate) fn status(&self) -> QueueStatus {
        QueueStatus {
            keys: self.keys.all().count(),
            waiting: self.waiting,
        }
    }

    /// Returns how long one more would wait for a key, after a hold of each of so many other processes. `None` if that is not
    /// known.
    pub(crate) fn expected_wait(
        &mut self,
        key: &Key,
        now: Timestamp,
        processes: u32,
    ) -> Option<Duration> {
        let queue = self.keys.locks.by_key.get(key)?;
        let past = queue.past().or_else(|| self.recent.get(key))?;
        let hold = past.usual_hold()?;
        Some(queue.expected_wait(hold, now) + hold.saturating_mul(processes))
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn tables(&self) -> QueueTables {
        let waiting = self.keys.all().map(KeyQueue::waiting);
        QueueTables {
            keys: self.keys.all().count(),
            waiting: self.waiting,
            waiting_for_one_key: waiting.max().unwrap_or(0),
            several: self.keys.locks.several,
        }
    }
}

impl<T: Clone> Queue<T> {
    /// Takes the turn for keys that are free. Returns whether to let other processes go first.
    fn begin(
        &mut self,
        place: QueuePlace<'_>,
        now: Timestamp,
        lease: &T,
        policy: &QueuePolicy,
    ) -> bool {
        let QueuePlace { keys, role, .. } = place;
        let mut backs_off = false;
        for key in keys.iter() {
            let queue = self.keys.of(role).queue(key);
            if role.takes_turns() && queue.past().is_none() {
                backs_off |= self.recent.begin_turn(key, now, policy);
            }
            queue.give_turn(place.arrival, role, lease.clone());
        }
        backs_off
    }

    /// Gives the turns for those of the keys that are free.
    #[must_use]
    pub(crate) fn advance(
        &mut self,
        role: Role,
        keys: &KeySet,
        now: Timestamp,
        pace: Pace,
    ) -> Vec<FollowUp<T>> {
        let queues = self.keys.of(role);
        let follow_ups: Vec<_> = keys
            .iter()
            .flat_map(|key| queues.advance(key, now, pace))
            .collect();
        let begin = |it: &&FollowUp<T>| matches!(it, FollowUp::StartTurn { .. });
        self.waiting -= follow_ups.iter().filter(begin).count();
        follow_ups
    }
}

impl<T> Keys<T> {
    const fn of(&mut self, role: Role) -> &mut KeyQueues<T> {
        match role {
            Role::Permit(_) => &mut self.semaphores,
            _ => &mut self.locks,
        }
    }

    fn all(&self) -> impl Iterator<Item = &KeyQueue<T>> {
        let locks = self.locks.by_key.values();
        locks.chain(self.semaphores.by_key.values())
    }
}

#[cfg(test)]
mod tests;
