//! The waiters for locks within this process: one queue for each key, first come, first served.
//!
//! Only the first in a queue asks the nodes, so a hundred waiters cost no more than one. A waiter for
//! several keys waits in the queues of all of them, and has its turn when all are free. Until then other waiters
//! overtake it, and once it is the first at all of them, for half of the time only: see [`key_queues`].

mod key_queues;
mod line;
mod outcome;
mod past;
mod shared;
mod shared_line;
mod wait_queue;

use std::{
    collections::{BTreeMap, hash_map},
    time::Duration,
};

use redlock_core::Timestamp;

use self::{
    key_queues::{Availability, Choice, FEW, KeyQueues},
    outcome::admit,
    past::Recent,
    shared::SharedLines,
    wait_queue::WaitQueue,
};
pub(crate) use self::{
    outcome::{FollowUp, JoinOutcome, Refusal, Succession},
    shared_line::Role,
};
use crate::{Key, engine::shrink, key::KeySet, options::QueuePolicy, random::Random, sync::Mutex};

/// The wait queues of one [`Redlock`](crate::Redlock). There is one for each key that is held or wanted.
#[derive(Debug)]
pub(crate) struct Queue<T>(Mutex<Queues<T>>);

#[derive(Clone, Debug)]
struct Queues<T> {
    keys: KeyQueues<T>,
    shared: SharedLines<T>,
    recent: Recent,
    waiting: usize,
    max_waiting: usize,
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

/// The place of a waiter in the order of arrival: the smaller ticket came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
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
        Self(Mutex::new(Queues {
            keys: KeyQueues::new(),
            shared: SharedLines::new(),
            recent: Recent::new(random),
            waiting: 0,
            max_waiting,
        }))
    }

    /// Takes the turn for all of these keys if they are free. Otherwise waits in their queues.
    ///
    /// # Errors
    ///
    /// Fails if the policy does not let it wait.
    pub(crate) fn join(
        &self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        request: &T,
    ) -> Result<JoinOutcome, Refusal> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let until = now.saturating_add(policy.wait);
        // Most waiters want one key, which another lease has.
        if !keys.has_several()
            && let key = keys.first()
            && let Some(queue) = queues.keys.by_key.get_mut(key)
            && queue.turn().is_some()
        {
            let (waiting, total) = (queue.waiting(), queues.waiting);
            admit([waiting].into_iter(), total, queues.max_waiting, policy)?;
            let past = || queues.recent.take(key);
            queue.push(ticket, request.clone(), until, past);
            queues.waiting += 1;
            return Ok(JoinOutcome::Waiting { look_at: None });
        }
        let look_at = match queues.keys.availability(keys, ticket, now, None) {
            Availability::Available => {
                let backs_off = queues.begin(keys, ticket, now, request, policy);
                return Ok(JoinOutcome::Turn { backs_off });
            }
            Availability::Taken => None,
            Availability::Kept { until } => Some(until),
        };
        queues.admit(keys, policy)?;
        queues.waiting += 1;
        queues.keys.several += usize::from(keys.has_several());
        for key in keys.iter() {
            let past = || queues.recent.take(key);
            let (queue, waiter) = (queues.keys.queue(key), request.clone());
            if keys.has_several() {
                queue.push_several(ticket, (keys.clone(), waiter), until, past);
            } else {
                queue.push(ticket, waiter, until, past);
            }
        }
        Ok(JoinOutcome::Waiting { look_at })
    }

    /// Leaves the queues of these keys, after having held the lock since `held`, if at all.
    #[must_use]
    pub(crate) fn leave(
        &self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let mut was_waiting = false;
        let mut backs_off = false;
        let mut others_wait = false;
        for key in keys.iter() {
            let hash_map::Entry::Occupied(mut queue) = queues.keys.by_key.entry(key.clone()) else {
                continue;
            };
            let next = queue.get().first();
            if queue.get_mut().end_turn(ticket) {
                backs_off |= match queue.get_mut().past_mut() {
                    Some(past) => past.end_turn(now, held, policy, next),
                    None => queues.recent.end_turn(key, now, held, policy),
                };
            } else {
                was_waiting |= queue.get_mut().remove(ticket);
            }
            others_wait |= queue.get().waiting() > 0;
            if queue.get().is_empty()
                && let Some(past) = queue.remove().past()
            {
                queues.recent.note(key, *past, now);
            }
        }
        shrink::map(&mut queues.keys.by_key);
        queues.waiting -= usize::from(was_waiting);
        queues.keys.several -= usize::from(was_waiting && keys.has_several());
        if others_wait {
            // After all of them are free, because a waiter may want several.
            queues.advance_all(keys, now, backs_off)
        } else {
            Vec::new()
        }
    }

    /// Gives the turns for keys that were kept for another waiter.
    #[must_use]
    pub(crate) fn look_again(&self, keys: &KeySet, now: Timestamp) -> Vec<FollowUp<T>> {
        self.0.lock().advance_all(keys, now, false)
    }

    /// Removes the next waiter for a key, for its holder since `held` to hand the lock over to it. The
    /// turn stays where it is. Returns `None` if the lock is to be released instead.
    pub(crate) fn successor(
        &self,
        key: &Key,
        now: Timestamp,
        held: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&T) -> bool,
    ) -> Succession<T> {
        let mut queues = self.0.lock();
        // Most often nobody waits, and there is no queue to look for.
        if queues.waiting == 0 {
            return Succession::Nobody;
        }
        let keys = &mut queues.keys;
        if keys.several > 0 && !matches!(keys.choose(key, now, FEW), Choice::One) {
            return Succession::Nobody;
        }
        let Some(queue) = keys.by_key.get_mut(key) else {
            return Succession::Nobody;
        };
        let Some((next, _)) = queue.first_single().filter(|(_, waiter)| fits(waiter)) else {
            return Succession::Nobody;
        };
        if !queue.may_hand_over(held, now, next, policy) {
            return Succession::TurnIsOver;
        }
        let Some((_, waiter)) = queue.pop() else {
            return Succession::Nobody;
        };
        queue.note_handover(held, now, policy);
        let is_late = queue.is_late(now);
        queues.waiting -= 1;
        Succession::Next { waiter, is_late }
    }

    /// Begins another turn for the holder of a key: no other process waits for it. Returns false if it is to be released all
    /// the same, for clients that poll, or for waiters for several keys.
    pub(crate) fn renew_turn(&self, key: &Key, now: Timestamp, policy: &QueuePolicy) -> bool {
        let mut queues = self.0.lock();
        let queue = queues.keys.by_key.get_mut(key);
        let queue = queue.filter(|queue| queue.several().next().is_none());
        queue.is_some_and(|queue| queue.renew_turn(now, policy))
    }

    /// Returns for how long to leave a key free, once it is, for clients that poll.
    pub(crate) fn take_pause(&self, key: &Key) -> Duration {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let queue = queues.keys.by_key.get_mut(key);
        match queue.and_then(WaitQueue::past_mut) {
            Some(past) => past.take_pause(),
            None => queues.recent.take_pause(key),
        }
    }

    /// Returns what has the turn for a key.
    pub(crate) fn turn(&self, key: &[u8]) -> Option<T> {
        self.0.lock().keys.by_key.get(key)?.turn().cloned()
    }

    /// Returns all that have a turn, in order of arrival. A request for several keys is there once.
    pub(crate) fn turns(&self) -> impl Iterator<Item = T> + use<T> {
        self.turns_and_waiters().map(|(turn, _)| turn)
    }

    /// Likewise, with the number of requests that wait for the same key, or for the one of several that most want.
    pub(crate) fn turns_and_waiters(&self) -> impl Iterator<Item = (T, usize)> + use<T> {
        let queues = self.0.lock();
        let plain = queues.keys.by_key.values();
        let plain = plain.filter_map(|it| Some((it.ticket_and_turn()?, it.waiting())));
        let shared = queues.shared.all();
        let shared = shared.flat_map(|it| it.turns().map(|turn| (turn, it.waiting())));
        let mut turns = BTreeMap::new();
        for ((ticket, turn), waiting) in plain.chain(shared) {
            let (_, most) = turns
                .entry(ticket)
                .or_insert_with(|| (turn.clone(), waiting));
            *most = waiting.max(*most);
        }
        turns.into_values()
    }

    pub(crate) fn status(&self) -> QueueStatus {
        let queues = self.0.lock();
        QueueStatus {
            keys: queues.keys.by_key.len() + queues.shared.len(),
            waiting: queues.waiting,
        }
    }

    /// Returns how long one more would wait for a key, after a hold of each of so many other processes. `None` if that is not
    /// known.
    pub(crate) fn expected_wait(
        &self,
        key: &Key,
        now: Timestamp,
        processes: u32,
    ) -> Option<Duration> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let queue = queues.keys.by_key.get(key)?;
        let past = queue.past().or_else(|| queues.recent.get(key))?;
        let hold = past.usual_hold()?;
        Some(queue.expected_wait(hold, now) + hold.saturating_mul(processes))
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn tables(&self) -> QueueTables {
        let queues = self.0.lock();
        let of_keys = queues.keys.by_key.values().map(WaitQueue::waiting);
        let waiting = of_keys.chain(queues.shared.all().map(|it| it.waiting()));
        QueueTables {
            keys: queues.keys.by_key.len() + queues.shared.len(),
            waiting: queues.waiting,
            waiting_for_one_key: waiting.max().unwrap_or(0),
            several: queues.keys.several,
        }
    }
}

impl<T: Clone> Queues<T> {
    /// Takes the turn for keys that are free. Returns whether to let other processes go first.
    fn begin(
        &mut self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        holder: &T,
        policy: &QueuePolicy,
    ) -> bool {
        let mut backs_off = false;
        for key in keys.iter() {
            let queue = self.keys.by_key.entry(key.clone()).or_insert_with(|| {
                backs_off |= self.recent.begin_turn(key, now, policy);
                WaitQueue::new()
            });
            queue.give_turn(ticket, holder.clone());
        }
        backs_off
    }

    /// Returns why one more cannot wait for these keys.
    fn admit(&self, keys: &KeySet, policy: &QueuePolicy) -> Result<(), Refusal> {
        let queues = keys.iter().filter_map(|key| self.keys.by_key.get(key));
        let of_keys = queues.map(WaitQueue::waiting);
        admit(of_keys, self.waiting, self.max_waiting, policy)
    }

    /// Gives the turns for those of the keys that are free.
    fn advance_all(&mut self, keys: &KeySet, now: Timestamp, backs_off: bool) -> Vec<FollowUp<T>> {
        let follow_ups = keys
            .iter()
            .filter_map(|key| self.advance(key, now, backs_off));
        follow_ups.collect()
    }

    /// Gives the turn for a key, if it is free, to the first waiter that may have it.
    fn advance(&mut self, key: &Key, now: Timestamp, backs_off: bool) -> Option<FollowUp<T>> {
        if self.keys.by_key.get(key)?.turn().is_some() {
            return None;
        }
        let waiter = match self.keys.choose(key, now, usize::MAX) {
            Choice::Nobody => return None,
            Choice::Later { waiter, at } => return Some(FollowUp::LookAgain { waiter, at }),
            Choice::One => {
                let queue = self.keys.by_key.get_mut(key)?;
                let (ticket, waiter) = queue.pop()?;
                queue.give_turn(ticket, waiter.clone());
                waiter
            }
            Choice::Several {
                ticket,
                keys,
                waiter,
            } => {
                for key in keys.iter() {
                    let queue = self.keys.queue(key);
                    queue.remove(ticket);
                    queue.give_turn(ticket, waiter.clone());
                }
                self.keys.several -= 1;
                waiter
            }
        };
        self.waiting -= 1;
        Some(FollowUp::StartTurn { waiter, backs_off })
    }
}

#[cfg(test)]
mod tests;
