//! The waiters for locks within this process: one queue for each key, first come, first served.
//!
//! Only the first in a queue asks the nodes, so a hundred waiters cost no more than one. A waiter for
//! several keys waits in the queues of all of them, and has its turn when all are free. Until then others
//! overtake it, within the bounds of [`reservation`].

mod hold_times;
mod recent;
mod reservation;
mod several;
mod streak;
mod ticket;
mod wait_queue;

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use redlock_core::Timestamp;

pub(crate) use self::ticket::Ticket;
use self::{
    recent::{Past, Recent},
    reservation::{MultiKeyWaiter, ReservationRule},
    several::Several,
    wait_queue::WaitQueue,
};
use crate::{
    Key,
    key::KeySet,
    options::QueuePolicy,
    sync::{Mutex, MutexGuard},
};

/// How many waiters for several keys are looked at before a free key goes to a waiter for it alone. Those that
/// another key keeps waiting are then parked there, so the next turn finds the next ones.
const LOOK: usize = 8;

/// The wait queues of one [`Redlock`](crate::Redlock). There is one for each key that is held or wanted.
#[derive(Debug)]
pub(crate) struct Queue<T>(Mutex<Queues<T>>);

#[derive(Debug)]
struct Queues<T> {
    by_key: HashMap<Key, WaitQueue<T>>,
    several: Several<T>,
    waiting: usize,
    max_waiting: usize,
    rule: ReservationRule,
    recent: Recent,
}

/// What became of joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Joined<T> {
    /// Nobody else is there.
    Turn {
        /// Whether to let other processes try first.
        stands_back: bool,
    },
    Waiting {
        /// What to do because it waits.
        next: Option<Next<T>>,
    },
}

/// What to do after a change, outside of all locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// Give this waiter its turn.
    Turn {
        waiter: T,
        /// Whether to let other processes try first.
        stands_back: bool,
    },
    /// Call [`Queue::lapse`] for this waiter at that time.
    Lapse { waiter: T, at: Timestamp },
}

/// Why one cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others are there, and no time to wait.
    Busy,
    /// Too many wait already.
    Full { waiting: usize, limit: usize },
    /// The expected wait exceeds the limit.
    TooLong {
        waiting: usize,
        expected: Duration,
        limit: Duration,
    },
}

/// Whether a waiter may have all its keys now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access<'a> {
    Open,
    /// Somebody has the turn for this key.
    Taken {
        key: &'a Key,
    },
    /// All are free, but this one is reserved for another waiter.
    Reserved {
        key: &'a Key,
        by: Ticket,
    },
}

impl<T: Clone> Queue<T> {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self::with_rule(max_waiting, ReservationRule::DEFAULT)
    }

    fn with_rule(max_waiting: usize, rule: ReservationRule) -> Self {
        Self(Mutex::new(Queues {
            by_key: HashMap::new(),
            several: Several::new(),
            waiting: 0,
            max_waiting,
            rule,
            recent: Recent::new(),
        }))
    }

    /// Takes the turn for all of these keys if they are free; otherwise waits in their queues.
    pub(crate) fn join(
        &self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        waiter: &T,
        policy: &QueuePolicy,
    ) -> Result<Joined<T>, Refusal> {
        let mut queues = self.queues();
        let (key, reserved_by) = match queues.access(keys, ticket, now) {
            Access::Open => {
                let stands_back = queues.begin(keys, ticket, now, waiter, policy);
                return Ok(Joined::Turn { stands_back });
            }
            Access::Taken { key } => (key, None),
            Access::Reserved { key, by } => (key, Some(by)),
        };
        if policy.wait.is_zero() {
            return Err(Refusal::Busy);
        }
        queues.admit(key, policy)?;
        let until = now.saturating_add(policy.wait);
        if keys.has_several() {
            queues.push_several(keys, ticket, now, waiter, until, key);
        } else {
            queues.queue(key).push(ticket, waiter.clone(), until);
        }
        queues.waiting += 1;
        let next = reserved_by.and_then(|by| queues.note_withheld(by, now));
        Ok(Joined::Waiting { next })
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
    ) -> Vec<Next<T>> {
        let mut queues = self.queues();
        let queues = &mut *queues;
        let several = queues.several.remove(ticket);
        let mut was_waiting = several.is_some();
        if let Some(waiter) = several {
            queues.note_end_of_reservation(&waiter, now);
        }
        let mut stands_back = false;
        let mut others_wait = false;
        for key in keys.iter() {
            let Entry::Occupied(mut queue) = queues.by_key.entry(key.clone()) else {
                continue;
            };
            match queue.get_mut().end_turn(ticket, now, held, policy) {
                Some(next_stands_back) => stands_back |= next_stands_back,
                None => was_waiting |= queue.get_mut().remove(ticket),
            }
            others_wait |= queue.get().waiting() > 0;
            if queue.get().is_empty() {
                let past = queue.remove().past();
                queues.recent.note(key, past, now);
            }
        }
        queues.waiting -= usize::from(was_waiting);
        if !others_wait {
            return Vec::new();
        }
        // After all of them are free, because a waiter may want several.
        queues.advance_all(keys, now, stands_back)
    }

    /// Ends the reservation for a waiter, if its time is over: who waits now may pass.
    #[must_use]
    pub(crate) fn lapse(&self, ticket: Ticket, now: Timestamp) -> Vec<Next<T>> {
        let mut queues = self.queues();
        let queues = &mut *queues;
        let Some(waiter) = queues.several.get_mut(ticket) else {
            return Vec::new();
        };
        let Some(lasted) = waiter.lapse(now, &queues.rule) else {
            return Vec::new();
        };
        let keys = waiter.keys.clone();
        queues.open(&keys, now.saturating_add(lasted));
        for key in keys.iter() {
            if let Some(queue) = queues.by_key.get_mut(key)
                && queue.turn().is_none()
            {
                queue.let_pass(ticket);
            }
        }
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
    ) -> Option<T> {
        let mut queues = self.queues();
        // Most often nobody waits, and there is no queue to look for.
        if queues.waiting == 0 {
            return None;
        }
        let queue = queues.by_key.get_mut(key)?;
        if !queue.may_hand_over(held, now, policy) {
            return None;
        }
        let queue = queues.by_key.get(key)?;
        let (ticket, waiter) = queue.first_single()?;
        if !fits(waiter)
            || queues.reserver(queue, ticket, now).is_some()
            || queues.is_only_obstacle(key, queue, now)
        {
            return None;
        }
        let queue = queues.by_key.get_mut(key)?;
        let (_, waiter) = queue.pop()?;
        queue.note_handover(held, now);
        queues.waiting -= 1;
        queues.note_overtaking(key, ticket);
        Some(waiter)
    }

    /// Returns the one that has the turn for a key.
    pub(crate) fn turn(&self, key: &[u8]) -> Option<T> {
        self.queues().by_key.get(key)?.turn().cloned()
    }

    /// Returns the one that has the turn, for each key.
    pub(crate) fn turns(&self) -> Vec<T> {
        let queues = self.queues();
        let turns = queues.by_key.values().filter_map(WaitQueue::turn);
        turns.cloned().collect()
    }

    /// Returns how many keys are held or wanted, and how many wait for their turn.
    pub(crate) fn len(&self) -> (usize, usize) {
        let queues = self.queues();
        (queues.by_key.len(), queues.waiting)
    }

    /// Returns how long one more would wait for a key, as far as is known.
    pub(crate) fn expected_wait(&self, key: &Key, now: Timestamp) -> Option<Duration> {
        self.queues().by_key.get(key)?.expected_wait(now)
    }

    fn queues(&self) -> MutexGuard<'_, Queues<T>> {
        self.0.lock()
    }
}

impl<T: Clone> Queues<T> {
    /// Takes the turn for keys that are free. Returns whether to let other processes try first.
    fn begin(
        &mut self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        waiter: &T,
        policy: &QueuePolicy,
    ) -> bool {
        let mut stands_back = false;
        for key in keys.iter() {
            let queue = self.by_key.entry(key.clone()).or_insert_with(|| {
                let mut past = self.recent.take(key, now);
                let had_streak = past.streak.is_some();
                past.streak = past.streak.filter(|it| it.may_go_on(now, policy));
                stands_back |= had_streak && past.streak.is_none() && !policy.wait.is_zero();
                WaitQueue::new(past)
            });
            queue.give_turn(ticket, waiter.clone());
            self.note_overtaking(key, ticket);
        }
        stands_back
    }

    /// Returns why one more cannot wait for a key.
    fn admit(&self, key: &Key, policy: &QueuePolicy) -> Result<(), Refusal> {
        let Some(queue) = self.by_key.get(key) else {
            return Ok(());
        };
        let of_key = (queue.waiting(), policy.max_waiters_per_key);
        for (waiting, limit) in [of_key, (self.waiting, self.max_waiting)] {
            if waiting >= limit {
                return Err(Refusal::Full { waiting, limit });
            }
        }
        let limit = policy.wait;
        if policy.refuses_long_waits
            && let Some(expected) = queue.least_wait().filter(|it| *it > limit)
        {
            return Err(Refusal::TooLong {
                waiting: queue.waiting(),
                expected,
                limit,
            });
        }
        Ok(())
    }

    /// Lets one wait for all of these keys, one of which keeps it from having them now.
    fn push_several(
        &mut self,
        keys: &KeySet,
        ticket: Ticket,
        now: Timestamp,
        waiter: &T,
        until: Timestamp,
        blocked_at: &Key,
    ) {
        for key in keys.iter() {
            self.queue(key).push_several(ticket, until);
        }
        let waiter = MultiKeyWaiter::new(waiter.clone(), keys.clone(), now, &self.rule);
        self.several.push(ticket, waiter, blocked_at);
    }

    fn queue(&mut self, key: &Key) -> &mut WaitQueue<T> {
        let queue = self.by_key.entry(key.clone());
        queue.or_insert_with(|| WaitQueue::new(Past::default()))
    }

    /// Gives the turns for those of the keys that are free.
    fn advance_all(&mut self, keys: &KeySet, now: Timestamp, stands_back: bool) -> Vec<Next<T>> {
        let mut next = Vec::new();
        for key in keys.iter() {
            self.advance(key, now, stands_back, &mut next);
        }
        next
    }

    /// Gives the turn for a key, if it is free, to the first that may have it.
    fn advance(&mut self, key: &Key, now: Timestamp, stands_back: bool, next: &mut Vec<Next<T>>) {
        let Some(queue) = self.by_key.get(key).filter(|it| it.turn().is_none()) else {
            return;
        };
        let single = queue.first_single().map(|(ticket, _)| ticket);
        let reserver = single.and_then(|it| self.reserver(queue, it, now));
        // Without a limit if the key stays free otherwise: those not looked at would wait for nobody.
        let look = match (single, reserver) {
            (Some(_), None) => LOOK,
            _ => usize::MAX,
        };
        if let Some(ticket) = self.choose_several(key, single, now, look, next) {
            next.extend(self.give_turn_for_several(ticket, stands_back));
        } else if let Some(by) = reserver {
            next.extend(self.note_withheld(by, now));
        } else {
            next.extend(self.give_turn_for_one(key, stands_back));
        }
    }

    /// Returns the first waiter parked at a key, of those in front of the first for this key alone, that may
    /// have all its keys. Parks those that may not at the key that keeps them waiting.
    fn choose_several(
        &mut self,
        key: &Key,
        single: Option<Ticket>,
        now: Timestamp,
        look: usize,
        next: &mut Vec<Next<T>>,
    ) -> Option<Ticket> {
        let mut last = None;
        for _ in 0..look {
            let ticket = self.several.next_parked_at(key, last)?;
            if single.is_some_and(|single| single < ticket) {
                return None;
            }
            last = Some(ticket);
            let keys = self.several.get(ticket)?.keys.clone();
            match self.access(&keys, ticket, now) {
                Access::Open => return Some(ticket),
                Access::Taken { key } => self.several.park(ticket, key),
                Access::Reserved { key, by } => {
                    self.several.park(ticket, key);
                    next.extend(self.note_withheld(by, now));
                }
            }
        }
        None
    }

    fn give_turn_for_one(&mut self, key: &Key, stands_back: bool) -> Option<Next<T>> {
        let queue = self.by_key.get_mut(key)?;
        let (ticket, waiter) = queue.pop()?;
        queue.give_turn(ticket, waiter.clone());
        self.waiting -= 1;
        self.note_overtaking(key, ticket);
        Some(Next::Turn {
            waiter,
            stands_back,
        })
    }

    fn give_turn_for_several(&mut self, ticket: Ticket, stands_back: bool) -> Option<Next<T>> {
        let MultiKeyWaiter { waiter, keys, .. } = self.several.remove(ticket)?;
        for key in keys.iter() {
            if let Some(queue) = self.by_key.get_mut(key) {
                queue.remove(ticket);
                queue.give_turn(ticket, waiter.clone());
            }
            self.note_overtaking(key, ticket);
        }
        self.waiting -= 1;
        Some(Next::Turn {
            waiter,
            stands_back,
        })
    }

    /// Returns whether a waiter may have all these keys now.
    fn access<'a>(&self, keys: &'a KeySet, ticket: Ticket, now: Timestamp) -> Access<'a> {
        let mut access = Access::Open;
        for key in keys.iter() {
            let Some(queue) = self.by_key.get(key) else {
                continue;
            };
            if queue.turn().is_some() {
                return Access::Taken { key };
            }
            if access == Access::Open
                && let Some(by) = self.reserver(queue, ticket, now)
            {
                access = Access::Reserved { key, by };
            }
        }
        access
    }

    /// Returns the waiter for which a key is reserved, if that keeps this one from it.
    fn reserver(&self, queue: &WaitQueue<T>, ticket: Ticket, now: Timestamp) -> Option<Ticket> {
        #[cfg(test)]
        if self.rule.reserves_out_of_order {
            let first = self.several.get(queue.first_several()?)?;
            let is_this = |it: &WaitQueue<T>| std::ptr::eq(it, queue);
            let is_first_key = self.by_key.get(first.keys.first()).is_some_and(is_this);
            let by = if is_first_key {
                queue.first_several()
            } else {
                queue.last_several()
            };
            return by.filter(|by| *by != ticket && !queue.lets_pass(*by, ticket));
        }
        let first = queue.first_several().filter(|it| *it < ticket)?;
        let waiter = self.several.get(first)?;
        let is_first = |key| {
            let queue = self.by_key.get(key);
            queue.is_some_and(|it| it.first() == Some(first) && !it.is_open(now))
        };
        let reserves = waiter.is_due(now, &self.rule)
            && !queue.lets_pass(first, ticket)
            && waiter.keys.iter().all(is_first);
        reserves.then_some(first)
    }

    /// Returns whether a waiter for several keys, in front of those for this key alone, would have all if
    /// this one was free.
    fn is_only_obstacle(&self, key: &Key, queue: &WaitQueue<T>, now: Timestamp) -> bool {
        let single = queue.first_single().map(|(ticket, _)| ticket);
        let parked = self.several.parked_at(key);
        let in_front = parked.take_while(|it| single.is_none_or(|single| *it < single));
        in_front.take(LOOK).any(|ticket| {
            let waiter = self.several.get(ticket);
            waiter.is_some_and(|it| {
                it.keys.iter().filter(|it| *it != key).all(|key| {
                    let queue = self.by_key.get(key);
                    queue.is_none_or(|queue| {
                        queue.turn().is_none() && self.reserver(queue, ticket, now).is_none()
                    })
                })
            })
        })
    }

    /// Notes that one gets a key before a waiter for several that came earlier.
    fn note_overtaking(&mut self, key: &Key, ticket: Ticket) {
        if self.several.is_empty() {
            return;
        }
        if let Some(first) = self.by_key.get(key).and_then(WaitQueue::first_several)
            && first < ticket
            && let Some(overtaken) = self.several.get_mut(first)
        {
            overtaken.note_overtaking();
        }
    }

    /// Notes that a free key is kept from somebody because of a waiter for several keys.
    fn note_withheld(&mut self, by: Ticket, now: Timestamp) -> Option<Next<T>> {
        let reserver = self.several.get_mut(by)?;
        let at = reserver.note_withheld(now)?;
        let waiter = reserver.waiter.clone();
        Some(Next::Lapse { waiter, at })
    }

    /// Opens the keys of a waiter that gives up while it keeps one of them from others: the next that waits
    /// for several would go on with that.
    fn note_end_of_reservation(&mut self, waiter: &MultiKeyWaiter<T>, now: Timestamp) {
        if let Some(lasted) = waiter.lasted(now) {
            self.open(&waiter.keys, now.saturating_add(lasted));
        }
    }

    /// Lets nobody reserve any of these keys until then.
    fn open(&mut self, keys: &KeySet, until: Timestamp) {
        for key in keys.iter() {
            if let Some(queue) = self.by_key.get_mut(key) {
                queue.open(until);
            }
        }
    }
}

#[cfg(test)]
mod tests;
