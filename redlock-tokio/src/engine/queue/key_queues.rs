use std::collections::HashMap;

use redlock_core::Timestamp;

use super::{
    Ticket,
    multi_key_waiters::MultiKeyWaiters,
    outcome::FollowUp,
    reservation::{MultiKeyWaiter, ReservationRule},
    wait_queue::WaitQueue,
};
use crate::{Key, key::KeySet};

/// How many waiters for several keys are looked at before a free key goes to a waiter for it alone. Those that
/// another key keeps waiting are then parked there, so the next turn looks at the next ones.
pub(super) const MAX_CANDIDATES: usize = 8;

/// The turns, waiters and reservations of all keys: which of them keeps a waiter from which key.
#[derive(Debug)]
pub(super) struct KeyQueues<T> {
    /// The order in which the map has them must not be seen, because it differs in each run.
    pub(super) by_key: HashMap<Key, WaitQueue<T>>,
    pub(super) multi: MultiKeyWaiters<T>,
    pub(super) rule: ReservationRule,
}

/// Whether a waiter may have all its keys now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability<'a> {
    Available,
    /// Another lease has the turn for this key.
    Taken {
        key: &'a Key,
    },
    /// All keys are free, but this one is reserved for another waiter.
    Reserved {
        key: &'a Key,
        by: Ticket,
    },
}

impl<T: Clone> KeyQueues<T> {
    pub(super) fn new(rule: ReservationRule) -> Self {
        Self {
            by_key: HashMap::new(),
            multi: MultiKeyWaiters::new(),
            rule,
        }
    }

    /// Returns the queue of a key, which is created if there is none.
    pub(super) fn queue(&mut self, key: &Key) -> &mut WaitQueue<T> {
        let queue = self.by_key.entry(key.clone());
        queue.or_insert_with(WaitQueue::new)
    }

    pub(super) fn availability<'a>(
        &self,
        keys: &'a KeySet,
        ticket: Ticket,
        now: Timestamp,
    ) -> Availability<'a> {
        let mut availability = Availability::Available;
        for key in keys.iter() {
            let Some(queue) = self.by_key.get(key) else {
                continue;
            };
            if queue.turn().is_some() {
                return Availability::Taken { key };
            }
            if availability == Availability::Available
                && let Some(by) = self.reserver(queue, ticket, now)
            {
                availability = Availability::Reserved { key, by };
            }
        }
        availability
    }

    /// Returns the waiter for which a key is reserved, if the reservation keeps this ticket from the key.
    pub(super) fn reserver(
        &self,
        queue: &WaitQueue<T>,
        ticket: Ticket,
        now: Timestamp,
    ) -> Option<Ticket> {
        let first = queue.first_several().filter(|first| *first < ticket)?;
        let waiter = self.multi.get(first)?;
        let is_first = |key| {
            let queue = self.by_key.get(key);
            queue.is_some_and(|queue| queue.first() == Some(first) && !queue.is_open(now))
        };
        let reserves = waiter.is_due(now, &self.rule)
            && !queue.lets_pass(first, ticket)
            && waiter.keys.iter().all(is_first);
        reserves.then_some(first)
    }

    /// Returns whether the first waiter for this key alone must not have it, for the sake of a waiter for several keys.
    pub(super) fn keeps_from_next(&self, key: &Key, now: Timestamp) -> bool {
        let Some(queue) = self.by_key.get(key) else {
            return false;
        };
        let is_reserved = |(ticket, _)| self.reserver(queue, ticket, now).is_some();
        queue.first_single().is_some_and(is_reserved) || self.is_only_obstacle(key, queue, now)
    }

    /// Returns whether a waiter for several keys would have all of them if this key was free. Looks only at
    /// waiters that came before all waiters for this key alone.
    pub(super) fn is_only_obstacle(&self, key: &Key, queue: &WaitQueue<T>, now: Timestamp) -> bool {
        let single = queue.first_single().map(|(ticket, _)| ticket);
        let parked = self.multi.parked_at(key);
        let in_front = parked.take_while(|ticket| single.is_none_or(|single| *ticket < single));
        in_front.take(MAX_CANDIDATES).any(|ticket| {
            let is_free = |key| {
                let queue = self.by_key.get(key);
                queue.is_none_or(|queue| {
                    queue.turn().is_none() && self.reserver(queue, ticket, now).is_none()
                })
            };
            let waiter = self.multi.get(ticket);
            waiter.is_some_and(|waiter| {
                waiter
                    .keys
                    .iter()
                    .filter(|other| *other != key)
                    .all(is_free)
            })
        })
    }

    /// Notes that this ticket gets a key before a waiter for several keys that came earlier.
    pub(super) fn note_overtaking(&mut self, key: &Key, ticket: Ticket) {
        if self.multi.is_empty() {
            return;
        }
        if let Some(first) = self.by_key.get(key).and_then(WaitQueue::first_several)
            && first < ticket
            && let Some(overtaken) = self.multi.get_mut(first)
        {
            overtaken.note_overtaking();
        }
    }

    /// Notes that another waiter is kept from a free key, because the key is reserved for this one.
    pub(super) fn note_withheld(&mut self, by: Ticket, now: Timestamp) -> Option<FollowUp<T>> {
        let reserver = self.multi.get_mut(by)?;
        let at = reserver.note_withheld(now)?;
        let waiter = reserver.waiter.clone();
        Some(FollowUp::ScheduleExpiry { waiter, at })
    }

    /// Opens the keys of a waiter that gives up while its reservation keeps another from a free key. Otherwise the
    /// next waiter for several keys would continue the reservation.
    pub(super) fn note_end_of_reservation(&mut self, waiter: &MultiKeyWaiter<T>, now: Timestamp) {
        if let Some(lasted) = waiter.elapsed(now) {
            self.open(&waiter.keys, now.saturating_add(lasted));
        }
    }

    /// Lets no waiter reserve any of these keys until then.
    pub(super) fn open(&mut self, keys: &KeySet, until: Timestamp) {
        for key in keys.iter() {
            if let Some(queue) = self.by_key.get_mut(key) {
                queue.open(until);
            }
        }
    }
}
