//! The queue of a semaphore. It has nothing to do with the queue of a lock of the same key.

use std::collections::hash_map;

use redlock_core::{Permits, Timestamp};

use super::{
    Entry, FollowUp, JoinOutcome, Queue, Refused, Ticket, outcome::admit, permit_line::PermitLine,
};
use crate::{Key, engine::shrink, options::QueuePolicy};

impl<T: Clone> Queue<T> {
    /// Takes a turn for a permit of this semaphore if there is room. Otherwise waits in the queue. `enter` makes what has
    /// the turn, or waits, and must not call back.
    ///
    /// # Errors
    ///
    /// Fails if the policy does not let it wait.
    pub(crate) fn join_semaphore(
        &self,
        key: &Key,
        permits: Permits,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        enter: impl FnOnce(Entry) -> T,
    ) -> Result<JoinOutcome<T>, Refused<T>> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let line = queues.semaphores.entry(key.clone());
        let line = line.or_insert_with(PermitLine::new);
        line.note_permits(permits.count());
        if line.waiting() == 0 && line.has_room() {
            line.give_turn(ticket, enter(Entry::Turn));
            let backs_off = queues.recent.begin_turn(key, now, policy);
            return Ok(JoinOutcome::Turn { backs_off });
        }
        let of_key = [line.waiting()].into_iter();
        admit(of_key, queues.waiting, queues.max_waiting, policy)?;
        line.push(ticket, enter(Entry::Line));
        queues.waiting += 1;
        Ok(JoinOutcome::Waiting { follow_up: None })
    }

    /// Leaves the queue of this semaphore, after having held a permit since `held`, if at all.
    #[must_use]
    pub(crate) fn leave_semaphore(
        &self,
        key: &Key,
        ticket: Ticket,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let hash_map::Entry::Occupied(mut line) = queues.semaphores.entry(key.clone()) else {
            return Vec::new();
        };
        let mut backs_off = false;
        if line.get_mut().end_turn(ticket) {
            backs_off = queues.recent.end_turn(key, now, held, policy);
        } else {
            queues.waiting -= usize::from(line.get_mut().remove(ticket));
        }
        let follow_ups = line.get_mut().advance(backs_off);
        queues.waiting -= follow_ups.len();
        if line.get().is_empty() {
            line.remove();
            shrink::map(&mut queues.semaphores);
        }
        follow_ups
    }

    /// Notes that the lease with this ticket has got its permit. Others may ask now.
    #[must_use]
    pub(crate) fn note_permit(
        &self,
        key: &Key,
        ticket: Ticket,
        now: Timestamp,
    ) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let Some(line) = queues.semaphores.get_mut(key) else {
            return Vec::new();
        };
        line.note_permit(ticket, now);
        let follow_ups = line.advance(false);
        queues.waiting -= follow_ups.len();
        follow_ups
    }

    /// Notes that a lease has found no permit free.
    pub(crate) fn note_no_permit(&self, key: &Key, ticket: Ticket) {
        if let Some(line) = self.0.lock().semaphores.get_mut(key) {
            line.note_none(ticket);
        }
    }

    /// Puts another in the place of what has a turn with this ticket, if it still has it.
    pub(crate) fn replace_permit_turn(&self, key: &Key, ticket: Ticket, holder: &T) {
        if let Some(line) = self.0.lock().semaphores.get_mut(key) {
            line.replace_turn(ticket, holder);
        }
    }

    /// Removes the next waiter for a permit, for the holder with this ticket to hand its permit over to it. The turn stays
    /// where it is. Returns `None` if the permit is to be released instead.
    pub(crate) fn next_for_permit(
        &self,
        key: &Key,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let mut queues = self.0.lock();
        let line = queues.semaphores.get_mut(key)?;
        let is_short = |since| now.saturating_duration_since(since) < policy.streak;
        let waiter = line.successor(ticket, is_short, fits)?;
        queues.waiting -= 1;
        Some(waiter)
    }

    /// Returns all that have a turn for a permit of this semaphore, in order of arrival.
    pub(crate) fn permit_turns(&self, key: &[u8]) -> Vec<T> {
        let queues = self.0.lock();
        let turns = queues.semaphores.get(key).map(PermitLine::turns);
        turns
            .into_iter()
            .flatten()
            .map(|(_, holder)| holder.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{engine::queue::Refusal, random::Random};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn policy() -> QueuePolicy {
        QueuePolicy {
            hands_over: true,
            streak: MS(30),
            poller_share: 0,
            max_waiters_per_key: 3,
            wait: MS(1000),
        }
    }

    struct Line {
        queue: Queue<u64>,
        key: Key,
    }

    impl Line {
        fn new() -> Self {
            Self {
                queue: Queue::new(100, &Random::system()),
                key: Key::new("exports").unwrap(),
            }
        }

        /// Returns whether it has a turn, or why it may not wait.
        fn join(&self, ticket: u64) -> Result<bool, Refusal> {
            let (permits, now) = (Permits::new(2).unwrap(), Timestamp::ZERO);
            let number = Ticket::new(ticket);
            let joined =
                self.queue
                    .join_semaphore(&self.key, permits, number, now, &policy(), |_| ticket);
            let is_turn = |outcome| matches!(outcome, JoinOutcome::Turn { .. });
            joined.map(is_turn).map_err(|refused| refused.refusal)
        }

        fn leave(&self, ticket: u64, held: bool) -> Vec<u64> {
            let held = held.then_some(Timestamp::ZERO);
            let (ticket, now) = (Ticket::new(ticket), Timestamp::ZERO);
            begun(
                self.queue
                    .leave_semaphore(&self.key, ticket, now, held, &policy()),
            )
        }

        fn note_permit(&self, ticket: u64) -> Vec<u64> {
            begun(
                self.queue
                    .note_permit(&self.key, Ticket::new(ticket), Timestamp::ZERO),
            )
        }

        fn hand_over(&self, ticket: u64, after: Duration) -> Option<u64> {
            let now = Timestamp::ZERO.saturating_add(after);
            self.queue
                .next_for_permit(&self.key, Ticket::new(ticket), now, &policy(), |_| true)
        }
    }

    fn begun(follow_ups: Vec<FollowUp<u64>>) -> Vec<u64> {
        let waiter = |follow_up| match follow_up {
            FollowUp::StartTurn { waiter, .. } => waiter,
            other => panic!("{other:?}"),
        };
        follow_ups.into_iter().map(waiter).collect()
    }

    #[test]
    fn there_are_as_many_turns_as_permits_and_the_next_in_line_comes_first() {
        let line = Line::new();
        assert_eq!(
            [1, 2, 3, 4, 5].map(|ticket| line.join(ticket)),
            [true, true, false, false, false].map(Ok)
        );
        let full = Refusal::Full {
            waiting: 3,
            limit: 3,
            limited_by: crate::WaiterLimit::PerKey,
        };
        assert_eq!(line.join(6), Err(full));
        assert_eq!(line.queue.permit_turns(b"exports"), [1, 2]);
        assert_eq!(line.leave(4, false), [0; 0], "it gave up");
        assert_eq!(line.leave(2, true), [3]);
        assert_eq!(line.leave(1, true), [5]);
        assert_eq!((line.leave(3, true), line.leave(5, true)), (vec![], vec![]));
        let size = line.queue.status();
        assert_eq!((size.keys, size.waiting), (0, 0));
    }

    #[test]
    fn only_one_asks_while_no_permit_is_free() {
        let line = Line::new();
        assert_eq!(line.join(1), Ok(true));
        line.queue.note_no_permit(&line.key, Ticket::new(1));
        assert_eq!(line.join(2), Ok(false));
        assert_eq!(line.note_permit(1), [2], "there may be more");
        line.queue.note_no_permit(&line.key, Ticket::new(2));
        assert_eq!(line.join(3), Ok(false));
        assert_eq!(line.leave(1, true), [0; 0], "the one that asks gets it");
        assert_eq!(line.leave(2, false), [3], "unless it gives up");
    }

    #[test]
    fn a_permit_is_handed_over_for_a_limited_time() {
        let line = Line::new();
        for ticket in 1..=4 {
            assert!(line.join(ticket).is_ok());
        }
        assert_eq!(line.hand_over(1, MS(0)), None, "it has none");
        assert!(line.note_permit(1).is_empty());
        assert_eq!(line.hand_over(1, MS(29)), Some(3));
        assert_eq!(line.hand_over(1, MS(30)), None);
        assert_eq!(line.leave(1, true), [4], "a place is free");
    }
}
