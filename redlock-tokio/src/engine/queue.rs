//! The waiters for locks within this process: one queue for each key, first come, first served.
//!
//! Only the first in a queue asks the nodes, so a hundred waiters cost no more than one. A waiter for
//! several keys waits in the queues of all of them, and has its turn when all are free. Until then other waiters
//! overtake it, within the bounds of [`reservation`].

mod key_queues;
mod line;
mod multi_key_waiters;
mod outcome;
mod past;
mod reservation;
mod shared;
mod shared_line;
mod wait_queue;

use std::{
    collections::{BTreeMap, hash_map},
    time::Duration,
};

use redlock_core::Timestamp;

use self::{
    key_queues::{Availability, KeyQueues, MAX_CANDIDATES},
    outcome::admit,
    past::Recent,
    reservation::{MultiKeyWaiter, ReservationRule},
    shared::SharedLines,
    wait_queue::WaitQueue,
};
pub(crate) use self::{
    outcome::{Entry, FollowUp, JoinOutcome, Refusal, Refused, Succession},
    shared_line::Role,
};
use crate::{Key, engine::shrink, key::KeySet, options::QueuePolicy, random::Random, sync::Mutex};

/// The wait queues of one [`Redlock`](crate::Redlock). There is one for each key that is held or wanted.
#[derive(Debug)]
pub(crate) struct Queue<T>(Mutex<Queues<T>>);

#[derive(Debug)]
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
    /// How many requests wait behind another request of this process.
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
    /// The waiters for several keys, or their groups, or their parking places: the most of these.
    pub(crate) several: usize,
}

impl<T: Clone> Queue<T> {
    pub(crate) fn new(max_waiting: usize, random: &Random) -> Self {
        Self::with_rule(max_waiting, ReservationRule::DEFAULT, random)
    }

    fn with_rule(max_waiting: usize, rule: ReservationRule, random: &Random) -> Self {
        Self(Mutex::new(Queues {
            keys: KeyQueues::new(rule),
            shared: SharedLines::new(),
            recent: Recent::new(random),
            waiting: 0,
            max_waiting,
        }))
    }

    /// Takes the turn for all of these keys if they are free. Otherwise waits in their queues. `enter` makes what
    /// has the turn, or waits, and must not call back.
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
        enter: impl FnOnce(Entry) -> T,
    ) -> Result<JoinOutcome<T>, Refused<T>> {
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
            queue.push(ticket, enter(Entry::Line), until, past);
            queues.waiting += 1;
            return Ok(JoinOutcome::Waiting { follow_up: None });
        }
        let (key, reserved_by) = match queues.keys.availability(keys, ticket, now) {
            Availability::Available => {
                let holder = enter(Entry::Turn);
                let backs_off = queues.begin(keys, ticket, now, &holder, policy);
                return Ok(JoinOutcome::Turn { backs_off });
            }
            Availability::Taken { key } => (key, None),
            Availability::Reserved { key, by } => (key, Some(by)),
        };
        // Noted for a waiter that is refused too: it will ask again, and the reservation must expire by then.
        let follow_up = reserved_by.and_then(|by| queues.keys.note_withheld(by, now));
        if let Err(refused) = queues.admit(keys, policy) {
            return Err(Refused {
                follow_up,
                ..refused
            });
        }
        let waiter = enter(Entry::Line);
        if keys.has_several() {
            queues.push_several(keys, ticket, now, waiter, until, key);
        } else {
            let past = || queues.recent.take(key);
            queues.keys.queue(key).push(ticket, waiter, until, past);
        }
        queues.waiting += 1;
        Ok(JoinOutcome::Waiting { follow_up })
    }

    /// Puts another in the place of what has the turn with this ticket, if it still has it.
    pub(crate) fn replace_turn(&self, keys: &KeySet, ticket: Ticket, holder: &T) {
        let mut queues = self.0.lock();
        for key in keys.iter() {
            if let Some(queue) = queues.keys.by_key.get_mut(key) {
                queue.replace_turn(ticket, holder);
            }
        }
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
        let several = queues.keys.multi.remove(ticket);
        let mut was_waiting = several.is_some();
        if let Some(waiter) = several {
            queues.keys.note_end_of_reservation(&waiter, now);
        }
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
        if others_wait {
            // After all of them are free, because a waiter may want several.
            queues.advance_all(keys, now, backs_off)
        } else {
            Vec::new()
        }
    }

    /// Ends the reservation for a waiter, if its time is over. The others that wait now may pass.
    #[must_use]
    pub(crate) fn expire(&self, ticket: Ticket, now: Timestamp) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let KeyQueues {
            by_key,
            multi,
            rule,
        } = &mut queues.keys;
        let Some(waiter) = multi.get_mut(ticket) else {
            return Vec::new();
        };
        let Some(lasted) = waiter.expire(now, rule) else {
            return Vec::new();
        };
        let keys = waiter.keys.clone();
        for key in keys.iter() {
            if let Some(queue) = by_key.get_mut(key)
                && queue.turn().is_none()
            {
                queue.let_pass(ticket);
            }
        }
        queues.keys.open(&keys, now.saturating_add(lasted));
        queues.advance_all(&keys, now, false)
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
        if !keys.multi.is_empty() && keys.keeps_from_next(key, now) {
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
        let Some((ticket, waiter)) = queue.pop() else {
            return Succession::Nobody;
        };
        queue.note_handover(held, now, policy);
        let is_late = queue.is_late(now);
        keys.note_overtaking(key, ticket);
        queues.waiting -= 1;
        Succession::Next { waiter, is_late }
    }

    /// Begins another turn for the holder of a key: no other process waits for it. Returns false if it is to be left free for
    /// a moment all the same, for clients that poll.
    pub(crate) fn renew_turn(&self, key: &Key, now: Timestamp, policy: &QueuePolicy) -> bool {
        let mut queues = self.0.lock();
        let queue = queues.keys.by_key.get_mut(key);
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

    /// Returns all that have a turn, in order of arrival. What has several keys is there once.
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
            several: queues.keys.multi.entries(),
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
            self.keys.note_overtaking(key, ticket);
        }
        backs_off
    }

    /// Returns why one more cannot wait for these keys.
    fn admit(&self, keys: &KeySet, policy: &QueuePolicy) -> Result<(), Refused<T>> {
        let queues = keys.iter().filter_map(|key| self.keys.by_key.get(key));
        let of_keys = queues.map(WaitQueue::waiting);
        admit(of_keys, self.waiting, self.max_waiting, policy)
    }

    /// Lets a lease wait for all of these keys, one of which keeps it from having them now.
    fn push_several(
        &mut self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        waiter: T,
        until: Timestamp,
        blocked_at: &Key,
    ) {
        for key in keys.iter() {
            let past = || self.recent.take(key);
            self.keys.queue(key).push_several(ticket, until, past);
        }
        let waiter = MultiKeyWaiter::new(waiter, keys.clone(), now, &self.keys.rule);
        self.keys.multi.push(ticket, waiter, blocked_at);
    }

    /// Gives the turns for those of the keys that are free.
    fn advance_all(&mut self, keys: &KeySet, now: Timestamp, backs_off: bool) -> Vec<FollowUp<T>> {
        let mut follow_ups = Vec::new();
        for key in keys.iter() {
            self.advance(key, now, backs_off, &mut follow_ups);
        }
        follow_ups
    }

    /// Gives the turn for a key, if it is free, to the first waiter that may have it.
    fn advance(
        &mut self,
        key: &Key,
        now: Timestamp,
        backs_off: bool,
        follow_ups: &mut Vec<FollowUp<T>>,
    ) {
        let Some(queue) = self
            .keys
            .by_key
            .get(key)
            .filter(|queue| queue.turn().is_none())
        else {
            return;
        };
        let single = queue.first_single().map(|(ticket, _)| ticket);
        let reserver = single.and_then(|ticket| self.keys.reserver(queue, ticket, now));
        // If the key stays free otherwise, there is no limit: a waiter that is not looked at would wait for no
        // other.
        let max_candidates = match (single, reserver) {
            (Some(_), None) => MAX_CANDIDATES,
            _ => usize::MAX,
        };
        let follow_up = if let Some(ticket) =
            self.choose_several(key, single, now, max_candidates, follow_ups)
        {
            self.give_turn_for_several(ticket, backs_off)
        } else if let Some(by) = reserver {
            self.keys.note_withheld(by, now)
        } else {
            self.give_turn_for_one(key, backs_off)
        };
        follow_ups.extend(follow_up);
    }

    /// Returns the first waiter parked at a key that may have all its keys, of those that came before all waiters
    /// for this key alone. Parks the others at the key that keeps them waiting.
    fn choose_several(
        &mut self,
        key: &Key,
        single: Option<Ticket>,
        now: Timestamp,
        max_candidates: usize,
        follow_ups: &mut Vec<FollowUp<T>>,
    ) -> Option<Ticket> {
        let mut last = None;
        for _ in 0..max_candidates {
            let ticket = self.keys.multi.next_parked_at(key, last)?;
            if single.is_some_and(|single| single < ticket) {
                return None;
            }
            last = Some(ticket);
            let keys = self.keys.multi.get(ticket)?.keys.clone();
            match self.keys.availability(&keys, ticket, now) {
                Availability::Available => return Some(ticket),
                Availability::Taken { key } => self.keys.multi.park(ticket, key),
                Availability::Reserved { key, by } => {
                    self.keys.multi.park(ticket, key);
                    follow_ups.extend(self.keys.note_withheld(by, now));
                }
            }
        }
        None
    }

    fn give_turn_for_one(&mut self, key: &Key, backs_off: bool) -> Option<FollowUp<T>> {
        let queue = self.keys.by_key.get_mut(key)?;
        let (ticket, waiter) = queue.pop()?;
        queue.give_turn(ticket, waiter.clone());
        self.waiting -= 1;
        self.keys.note_overtaking(key, ticket);
        Some(FollowUp::StartTurn { waiter, backs_off })
    }

    fn give_turn_for_several(&mut self, ticket: Ticket, backs_off: bool) -> Option<FollowUp<T>> {
        let MultiKeyWaiter { waiter, keys, .. } = self.keys.multi.remove(ticket)?;
        for key in keys.iter() {
            if let Some(queue) = self.keys.by_key.get_mut(key) {
                queue.remove(ticket);
                queue.give_turn(ticket, waiter.clone());
            }
            self.keys.note_overtaking(key, ticket);
        }
        self.waiting -= 1;
        Some(FollowUp::StartTurn { waiter, backs_off })
    }
}

#[cfg(test)]
mod tests;
