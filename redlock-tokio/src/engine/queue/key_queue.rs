use std::{collections::BTreeMap, time::Duration};

use redlock_core::Timestamp;

use super::{
    Arrival,
    beside::{Beside, Role},
    line::Line,
    past::Past,
};
use crate::{key::KeySet, options::QueuePolicy};

/// The requests of this process for one key: those that have a turn, and those that wait, in the order in which they came.
///
/// A turn lasts from the first attempt to the end of the hold.
#[derive(Clone, Debug)]
pub(super) struct KeyQueue<T> {
    /// The turn of a plain lock. Most queues have nothing else.
    lock: Option<(Arrival, T)>,
    rest: Option<Box<Rest<T>>>,
}

/// The parts of a queue that it needs once somebody has waited, or for requests that are no plain locks.
#[derive(Clone, Debug)]
struct Rest<T> {
    /// The turns of other roles, if there were any.
    beside: Option<Box<Beside<T>>>,
    /// The waiters for this key alone.
    single: Line<(Role, T)>,
    /// The waiters for this key and others, with all their keys.
    several: BTreeMap<Arrival, (KeySet, T)>,
    /// The past of a plain lock for which somebody has waited.
    past: Option<Past>,
    /// When the time to wait is over for all that have joined.
    gone_by: Timestamp,
}

/// How many waiters get a turn, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(super) most: usize,
    /// Whether those that are no readers let other processes go first.
    pub(super) backs_off: bool,
    /// Whether so many permits were seen free.
    pub(super) seen_free: bool,
}

impl Pace {
    /// All that may have one.
    pub(crate) const ALL: Self = Self::after(false, false);

    /// So many more as permits were seen free.
    pub(crate) const fn for_seen(permits: usize) -> Self {
        Self {
            most: permits,
            backs_off: false,
            seen_free: true,
        }
    }

    /// After one that `has_waited` for a permit, the next one goes to the end of the line of processes.
    pub(super) const fn after(has_waited: bool, backs_off: bool) -> Self {
        Self {
            most: if has_waited { 1 } else { usize::MAX },
            backs_off: has_waited || backs_off,
            seen_free: false,
        }
    }
}

impl<T> KeyQueue<T> {
    pub(super) const fn new() -> Self {
        Self {
            lock: None,
            rest: None,
        }
    }

    // Turns.

    /// Returns whether a request that has just come may have a turn. A reader that asks the nodes itself need not wait behind
    /// readers that wait to join another.
    pub(super) fn may_begin(&self, role: Role, arrival: Arrival) -> bool {
        let is_next = self.first_single().is_none_or(|(it, ..)| arrival < it);
        let passes = || role == Role::LoneReader && self.single().all(|(it, _)| it.is_reader());
        (is_next || passes()) && self.has_room(role, false)
    }

    /// Returns whether the first waiter for this key alone may have a turn.
    pub(super) fn is_open(&self, pace: Pace) -> bool {
        let first = self.first_single();
        first.is_some_and(|(_, role, _)| self.has_room(role, pace.seen_free))
    }

    /// Returns whether a request that is the first may have a turn: a plain lock is alone, and [`Beside::has_room`] has the rules
    /// of the others.
    fn has_room(&self, role: Role, seen_free: bool) -> bool {
        let beside = self.beside();
        self.lock.is_none() && beside.is_none_or(|it| it.has_room(role, seen_free))
    }

    pub(super) fn give_turn(&mut self, arrival: Arrival, role: Role, lease: T) {
        if role == Role::Lock {
            self.lock = Some((arrival, lease));
        } else {
            let beside = self.rest_mut().beside.get_or_insert_default();
            beside.give_turn(arrival, role, lease);
        }
    }

    /// Ends the turn with this arrival. Returns whether it was there.
    pub(super) fn end_turn(&mut self, arrival: Arrival) -> bool {
        self.lock.take_if(|(has, _)| *has == arrival).is_some()
            || self.beside_mut().is_some_and(|it| it.end_turn(arrival))
    }

    /// Returns all that have a turn, and their arrivals.
    pub(super) fn turns(&self) -> impl Iterator<Item = (Arrival, &T)> {
        let lock = self.lock.iter().map(|(arrival, lease)| (*arrival, lease));
        lock.chain(self.beside().into_iter().flat_map(Beside::turns))
    }

    /// Returns whether others than a plain lock have a turn.
    pub(super) fn has_others(&self) -> bool {
        self.beside().is_some_and(|it| !it.is_empty())
    }

    pub(super) fn is_free(&self) -> bool {
        self.lock.is_none() && !self.has_others()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_free() && self.waiting() == 0
    }

    /// Returns the turns of other roles than a plain lock.
    pub(super) fn beside(&self) -> Option<&Beside<T>> {
        self.rest.as_ref()?.beside.as_deref()
    }

    /// Likewise.
    pub(super) fn beside_mut(&mut self) -> Option<&mut Beside<T>> {
        self.rest.as_mut()?.beside.as_deref_mut()
    }

    /// Returns the readers that hold the lock and that a new reader may join: those that came last, if nobody waits.
    pub(super) fn open_turn(&self) -> Option<&T> {
        let beside = self.beside().filter(|_| self.waiting() == 0);
        beside?.open_turn()
    }

    /// Removes the first of all waiters, if it is a reader that may join those with this arrival.
    pub(super) fn take_next_to_join(
        &mut self,
        arrival: Arrival,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let may_join = self.beside()?.may_be_joined(arrival);
        let next = self.successor(Role::Reader, fits).filter(|_| may_join)?;
        let is_first = self.first() == Some(next);
        is_first.then(|| self.pop()).flatten().map(|(.., it)| it)
    }

    // Waiters.

    /// Adds a waiter for this key alone. It waits until `until` at most. If a plain lock is the first that waits for the end of
    /// the turn of another, `past` is what was known when that turn began.
    pub(super) fn push(
        &mut self,
        (arrival, role): (Arrival, Role),
        waiter: T,
        until: Timestamp,
        past: impl FnOnce() -> Past,
    ) {
        if let Some(beside) = self.beside_mut() {
            beside.note_permits(role);
        }
        let rest = self.rest_for(role, until, past);
        rest.single.push(arrival, (role, waiter));
    }

    /// Adds a waiter for this key and others, likewise.
    pub(super) fn push_several(
        &mut self,
        arrival: Arrival,
        waiter: (KeySet, T),
        until: Timestamp,
        past: impl FnOnce() -> Past,
    ) {
        let rest = self.rest_for(Role::Lock, until, past);
        rest.several.insert(arrival, waiter);
    }

    /// Removes the first waiter for this key alone.
    pub(super) fn pop(&mut self) -> Option<(Arrival, Role, T)> {
        let (arrival, (role, waiter)) = self.rest.as_mut()?.single.pop()?;
        Some((arrival, role, waiter))
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, arrival: Arrival) -> bool {
        let Some(rest) = &mut self.rest else {
            return false;
        };
        rest.single.remove(arrival) || rest.several.remove(&arrival).is_some()
    }

    /// Returns the first waiter, for this key alone or for this key and others.
    pub(super) fn first(&self) -> Option<Arrival> {
        let single = self.first_single().map(|(arrival, ..)| arrival);
        let several = self.several().next().map(|(arrival, _)| *arrival);
        single.into_iter().chain(several).min()
    }

    /// Returns the first waiter for this key alone.
    pub(super) fn first_single(&self) -> Option<(Arrival, Role, &T)> {
        let (arrival, (role, waiter)) = self.rest.as_ref()?.single.first()?;
        Some((arrival, *role, waiter))
    }

    /// Returns the waiters for this key and others, in order of arrival.
    pub(super) fn several(&self) -> impl Iterator<Item = (&Arrival, &(KeySet, T))> {
        self.rest.iter().flat_map(|rest| &rest.several)
    }

    fn single(&self) -> impl Iterator<Item = &(Role, T)> {
        self.rest.iter().flat_map(|rest| rest.single.iter())
    }

    pub(super) fn waiting(&self) -> usize {
        let waiting = |rest: &Rest<T>| rest.single.len() + rest.several.len();
        self.rest.as_deref().map_or(0, waiting)
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

    // The next holder.

    /// Returns the first waiter for this key alone, if it has this role and fits.
    pub(super) fn successor(&self, role: Role, fits: impl FnOnce(&T) -> bool) -> Option<Arrival> {
        let (arrival, next, waiter) = self.first_single()?;
        (next == role && fits(waiter)).then_some(arrival)
    }

    /// Returns whether the holder of a plain lock since `held` may hand it over.
    pub(super) fn may_hand_over(
        &mut self,
        held: Timestamp,
        now: Timestamp,
        next: Arrival,
        policy: &QueuePolicy,
    ) -> bool {
        let last = self.last_single();
        self.past_mut()
            .is_some_and(|past| past.may_go_on(held, now, Some(next), last, policy))
    }

    /// Begins another streak of the holder, unless it owes others a pause. Returns whether it did.
    pub(super) fn renew_streak(&mut self, now: Timestamp, policy: &QueuePolicy) -> bool {
        let last = self.last_single();
        let past = self.past_mut().filter(|past| !past.owes_pause());
        let past = past.map(|past| past.renew(now, last, policy));
        past.is_some()
    }

    fn last_single(&self) -> Option<Arrival> {
        self.rest.as_ref()?.single.last()
    }

    /// Returns what is known of earlier holds. [`Recent`](super::past::Recent) knows it if nobody has waited for a plain lock.
    pub(super) fn past(&self) -> Option<&Past> {
        self.rest.as_ref()?.past.as_ref()
    }

    /// Likewise.
    pub(super) fn past_mut(&mut self) -> Option<&mut Past> {
        self.rest.as_mut()?.past.as_mut()
    }

    fn rest_for(
        &mut self,
        role: Role,
        until: Timestamp,
        past: impl FnOnce() -> Past,
    ) -> &mut Rest<T> {
        let has_lock = self.lock.is_some();
        let rest = self.rest_mut();
        rest.gone_by = rest.gone_by.max(until);
        if role == Role::Lock {
            let past = || if has_lock { past() } else { Past::default() };
            rest.past.get_or_insert_with(past);
        }
        rest
    }

    fn rest_mut(&mut self) -> &mut Rest<T> {
        self.rest.get_or_insert_with(|| {
            Box::new(Rest {
                beside: None,
                single: Line::new(),
                several: BTreeMap::new(),
                past: None,
                gone_by: Timestamp::ZERO,
            })
        })
    }
}

fn count(waiters: usize) -> u32 {
    u32::try_from(waiters).unwrap_or(u32::MAX)
}
