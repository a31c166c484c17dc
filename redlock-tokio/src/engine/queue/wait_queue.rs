use std::{collections::BTreeMap, time::Duration};

use redlock_core::Timestamp;

use super::{Ticket, line::Line, past::Past};
use crate::{key::KeySet, options::QueuePolicy};

/// The waiters for one key within this process, and the lease that has the turn. That lease contends with other
/// processes for the lock, and then holds it.
#[derive(Clone, Debug)]
pub(super) struct WaitQueue<T> {
    turn: Option<(Ticket, T)>,
    /// `None` if nobody has waited yet, as for most locks that are held.
    rest: Option<Box<Rest<T>>>,
}

/// The parts of a queue that it needs once somebody has waited.
#[derive(Clone, Debug)]
struct Rest<T> {
    /// The waiters for this key alone.
    single: Line<T>,
    /// The waiters for this key and others, with all their keys.
    several: BTreeMap<Ticket, (KeySet, T)>,
    past: Past,
    /// When the time to wait is over for all that have joined.
    gone_by: Timestamp,
}

impl<T> WaitQueue<T> {
    pub(super) const fn new() -> Self {
        Self {
            turn: None,
            rest: None,
        }
    }

    pub(super) fn give_turn(&mut self, ticket: Ticket, waiter: T) {
        self.turn = Some((ticket, waiter));
    }

    /// Ends the turn with this ticket. Returns whether it was there.
    pub(super) fn end_turn(&mut self, ticket: Ticket) -> bool {
        self.turn.take_if(|(has, _)| *has == ticket).is_some()
    }

    /// Adds a waiter for this key alone. It waits until `until` at most. If it is the first that waits for the end of a
    /// turn, `past` is what was known when the turn began.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        waiter: T,
        until: Timestamp,
        past: impl FnOnce() -> Past,
    ) {
        let rest = self.rest_or_insert(past);
        rest.single.push(ticket, waiter);
        rest.gone_by = rest.gone_by.max(until);
    }

    /// Adds a waiter for this key and others, likewise.
    pub(super) fn push_several(
        &mut self,
        ticket: Ticket,
        waiter: (KeySet, T),
        until: Timestamp,
        past: impl FnOnce() -> Past,
    ) {
        let rest = self.rest_or_insert(past);
        rest.several.insert(ticket, waiter);
        rest.gone_by = rest.gone_by.max(until);
    }

    /// Removes the first waiter for this key alone.
    pub(super) fn pop(&mut self) -> Option<(Ticket, T)> {
        self.rest.as_mut()?.single.pop()
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(rest) = &mut self.rest else {
            return false;
        };
        rest.single.remove(ticket) || rest.several.remove(&ticket).is_some()
    }

    /// Returns the first waiter, for this key alone or for this key and others.
    pub(super) fn first(&self) -> Option<Ticket> {
        let single = self.first_single().map(|(ticket, _)| ticket);
        let several = self.several().next().map(|(ticket, _)| *ticket);
        single.into_iter().chain(several).min()
    }

    /// Returns the first waiter for this key alone.
    pub(super) fn first_single(&self) -> Option<(Ticket, &T)> {
        let rest = self.rest.as_ref()?;
        rest.single.first()
    }

    /// Returns the waiters for this key and others, in order of arrival.
    pub(super) fn several(&self) -> impl Iterator<Item = (&Ticket, &(KeySet, T))> {
        self.rest.iter().flat_map(|rest| &rest.several)
    }

    /// Returns whether the holder since `held` may hand the lock over.
    pub(super) fn may_hand_over(
        &mut self,
        held: Timestamp,
        now: Timestamp,
        next: Ticket,
        policy: &QueuePolicy,
    ) -> bool {
        let last = self.last_single();
        self.past_mut()
            .is_some_and(|past| past.may_go_on(held, now, Some(next), last, policy))
    }

    /// Returns whether half of the turn is over.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.past().is_some_and(|past| past.is_late(now))
    }

    /// Begins another turn for the holder, unless it owes others a pause. Returns whether it did.
    pub(super) fn renew_turn(&mut self, now: Timestamp, policy: &QueuePolicy) -> bool {
        let last = self.last_single();
        let past = self.past_mut().filter(|past| !past.owes_pause());
        let past = past.map(|past| past.renew(now, last, policy));
        past.is_some()
    }

    fn last_single(&self) -> Option<Ticket> {
        self.rest.as_ref()?.single.last()
    }

    pub(super) fn note_handover(&mut self, held: Timestamp, now: Timestamp, policy: &QueuePolicy) {
        if let Some(past) = self.past_mut() {
            past.note_hold(held, now, policy);
        }
    }

    pub(super) fn turn(&self) -> Option<&T> {
        self.ticket_and_turn().map(|(_, waiter)| waiter)
    }

    /// Returns the lease that has the turn, and its ticket.
    pub(super) fn ticket_and_turn(&self) -> Option<(Ticket, &T)> {
        self.turn.as_ref().map(|(ticket, waiter)| (*ticket, waiter))
    }

    pub(super) fn waiting(&self) -> usize {
        let waiting = |rest: &Rest<T>| rest.single.len() + rest.several.len();
        self.rest.as_deref().map_or(0, waiting)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turn.is_none() && self.waiting() == 0
    }

    /// Returns how long a lease that joined now would wait, if each hold takes `hold`. It cannot be longer than the
    /// waiters in front have time to wait.
    pub(super) fn expected_wait(&self, hold: Duration, now: Timestamp) -> Duration {
        let expected = hold.saturating_mul(count(1 + self.waiting()));
        match &self.rest {
            Some(rest) if self.waiting() > 0 => {
                expected.min(rest.gone_by.saturating_duration_since(now))
            }
            _ => expected,
        }
    }

    /// Returns what is known of earlier holds. [`Recent`](super::past::Recent) knows it if nobody has waited yet.
    pub(super) fn past(&self) -> Option<&Past> {
        self.rest.as_ref().map(|rest| &rest.past)
    }

    /// Likewise.
    pub(super) fn past_mut(&mut self) -> Option<&mut Past> {
        self.rest.as_mut().map(|rest| &mut rest.past)
    }

    fn rest_or_insert(&mut self, past: impl FnOnce() -> Past) -> &mut Rest<T> {
        let has_turn = self.turn.is_some();
        self.rest.get_or_insert_with(|| {
            Box::new(Rest {
                single: Line::new(),
                several: BTreeMap::new(),
                past: if has_turn { past() } else { Past::default() },
                gone_by: Timestamp::ZERO,
            })
        })
    }
}

fn count(waiters: usize) -> u32 {
    u32::try_from(waiters).unwrap_or(u32::MAX)
}
