//! The queues of semaphores, and of locks for readers and writers. A plain lock of the same key has a queue of its own.

use std::collections::{HashMap, hash_map};

use redlock_core::{Slot, Timestamp};

use super::{
    FollowUp, JoinOutcome, Queue, Refusal, Role, Ticket, outcome::admit, shared_line::SharedLine,
    wait_queue::WaitQueue,
};
use crate::{Key, engine::shrink, key::SlotKeys, options::QueuePolicy};

/// By key. A semaphore and a lock of the same key have nothing to do with each other.
#[derive(Clone, Debug)]
pub(super) struct SharedLines<T> {
    semaphores: HashMap<Key, SharedLine<T>>,
    read_write: HashMap<Key, SharedLine<T>>,
    /// Locks that were adopted. The nodes keep them apart.
    adopted: HashMap<Key, SharedLine<T>>,
}

impl<T: Clone> SharedLines<T> {
    pub(super) fn new() -> Self {
        Self {
            semaphores: HashMap::new(),
            read_write: HashMap::new(),
            adopted: HashMap::new(),
        }
    }

    fn of(&mut self, role: Role) -> &mut HashMap<Key, SharedLine<T>> {
        match role {
            Role::Permit(_) => &mut self.semaphores,
            Role::Reader | Role::LoneReader | Role::Writer => &mut self.read_write,
            Role::Adopter => &mut self.adopted,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SharedLine<T>> {
        let maps = [&self.semaphores, &self.read_write, &self.adopted];
        maps.into_iter().flat_map(HashMap::values)
    }

    pub(super) fn len(&self) -> usize {
        self.semaphores.len() + self.read_write.len() + self.adopted.len()
    }
}

impl<T: Clone> Queue<T> {
    /// Like [`join`](Self::join), for a request with this role.
    ///
    /// # Errors
    ///
    /// Fails if the policy does not let it wait.
    pub(crate) fn join_shared(
        &self,
        key: &Key,
        role: Role,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        request: &T,
    ) -> Result<JoinOutcome, Refusal> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        // In a new line there is room, so none is left empty.
        let line = queues.shared.of(role).entry(key.clone());
        let line = line.or_insert_with(SharedLine::new);
        // A writer that does not wait would only keep readers of its process waiting.
        let is_refused = role == Role::Writer && policy.wait.is_zero() && !line.is_empty();
        if !is_refused && line.may_begin(role) {
            line.give_turn(ticket, role, request.clone());
            let backs_off = role.takes_turns() && queues.recent.begin_turn(key, now, policy);
            return Ok(JoinOutcome::Turn { backs_off });
        }
        let of_key = [line.waiting()].into_iter();
        admit(of_key, queues.waiting, queues.max_waiting, policy)?;
        line.push(ticket, role, request.clone());
        queues.waiting += 1;
        Ok(JoinOutcome::Waiting { look_at: None })
    }

    /// Like [`leave`](Self::leave), for a request with this role.
    #[must_use]
    pub(crate) fn leave_shared(
        &self,
        key: &Key,
        role: Role,
        ticket: Ticket,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let lines = queues.shared.of(role);
        let hash_map::Entry::Occupied(mut line) = lines.entry(key.clone()) else {
            return Vec::new();
        };
        let (has_ended, has_waited) = line.get_mut().end_turn(ticket);
        let mut backs_off = false;
        if !has_ended {
            queues.waiting -= usize::from(line.get_mut().remove(ticket));
        } else if role.takes_turns() {
            backs_off = queues.recent.end_turn(key, now, held, policy);
        }
        let follow_ups = line.get_mut().advance_after(has_waited, backs_off);
        queues.waiting -= follow_ups.len();
        if line.get().is_empty() {
            line.remove();
            shrink::map(lines);
        }
        follow_ups
    }

    /// Notes that the lease with this ticket has got the lock or a permit. Others may ask now: one, if it had to wait for the
    /// permit.
    #[must_use]
    pub(crate) fn note_hold(
        &self,
        key: &Key,
        role: Role,
        ticket: Ticket,
        now: Timestamp,
    ) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let Some(line) = queues.shared.of(role).get_mut(key) else {
            return Vec::new();
        };
        let follow_ups = line.note_hold(ticket, now);
        queues.waiting -= follow_ups.len();
        follow_ups
    }

    /// Notes that a lease has found no permit free.
    pub(crate) fn note_none_free(&self, key: &Key, ticket: Ticket) {
        self.in_semaphore(key, |line| line.note_none_free(ticket));
    }

    /// Makes a lease that has found no permit free the [scout](SharedLine::make_scout) of its process unless there is one.
    /// Returns whether it is the scout.
    pub(crate) fn make_scout(&self, key: &Key, ticket: Ticket) -> bool {
        self.in_semaphore(key, |line| line.make_scout(ticket))
    }

    /// Notes that a lease that wants a permit has found that no other process waits.
    pub(crate) fn note_alone(&self, key: &Key, ticket: Ticket) {
        self.in_semaphore(key, |line| line.note_alone(ticket));
    }

    /// Lets all ask for permits that may.
    #[must_use]
    pub(crate) fn begin_all(&self, key: &Key) -> Vec<FollowUp<T>> {
        self.advance_semaphore(key, |line| line.advance_after(false, false))
    }

    /// Lets so many more ask for permits that were seen free.
    #[must_use]
    pub(crate) fn begin_permits(&self, key: &Key, permits: usize) -> Vec<FollowUp<T>> {
        self.advance_semaphore(key, |line| line.advance_by(permits))
    }

    fn advance_semaphore(
        &self,
        key: &Key,
        advance: impl FnOnce(&mut SharedLine<T>) -> Vec<FollowUp<T>>,
    ) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let line = queues.shared.semaphores.get_mut(key);
        let follow_ups = line.map(advance).unwrap_or_default();
        queues.waiting -= follow_ups.len();
        follow_ups
    }

    /// Returns what this says of the line of a semaphore, or the default if there is none.
    fn in_semaphore<R: Default>(&self, key: &Key, ask: impl FnOnce(&mut SharedLine<T>) -> R) -> R {
        let mut queues = self.0.lock();
        let line = queues.shared.semaphores.get_mut(key);
        line.map(ask).unwrap_or_default()
    }

    /// Returns whether a lease has a permit.
    pub(crate) fn has_permit(&self, key: &Key) -> bool {
        self.in_semaphore(key, |line| line.is_held())
    }

    /// Returns the scout of a semaphore, if there is one.
    pub(crate) fn scout(&self, key: &Key) -> Option<T> {
        self.in_semaphore(key, |line| line.scout().cloned())
    }

    /// Returns those that have found no permit free, and wait for one, in order of arrival.
    pub(crate) fn found_none(&self, key: &Key) -> Vec<T> {
        self.in_semaphore(key, |line| line.found_none().cloned().collect())
    }

    /// Returns those that ask for a permit, and have not found that none is free.
    pub(crate) fn asking(&self, key: &Key) -> Vec<T> {
        self.in_semaphore(key, |line| line.asking().cloned().collect())
    }

    /// Notes that the writer with this ticket has become a reader, which others may join.
    pub(crate) fn note_downgrade(&self, key: &Key, ticket: Ticket) {
        if let Some(line) = self.0.lock().shared.read_write.get_mut(key) {
            line.note_downgrade(ticket);
        }
    }

    /// Returns the lease of the readers that a new reader may join.
    pub(crate) fn open_turn(&self, key: &Key) -> Option<T> {
        let queues = self.0.lock();
        queues.shared.read_write.get(key)?.open_turn().cloned()
    }

    /// Removes the next waiter, if it is a reader that may join those with this ticket.
    pub(crate) fn next_to_join(
        &self,
        key: &Key,
        ticket: Ticket,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let mut queues = self.0.lock();
        let line = queues.shared.read_write.get_mut(key)?;
        let waiter = line.next_to_join(ticket, fits)?;
        queues.waiting -= 1;
        Some(waiter)
    }

    /// Removes the next waiter, for the writer or the holder of a permit with this ticket to hand over to it. The turn stays
    /// where it is. Returns `None` if the lock or permit is to be released instead.
    pub(crate) fn shared_successor(
        &self,
        key: &Key,
        role: Role,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let mut queues = self.0.lock();
        let is_short = |since| now.saturating_duration_since(since) < policy.streak;
        let line = queues.shared.of(role).get_mut(key)?;
        let waiter = line.successor(ticket, is_short, fits)?;
        queues.waiting -= 1;
        Some(waiter)
    }

    /// Returns all that have a turn with such a role, in order of arrival.
    pub(crate) fn shared_turns(&self, key: &Key, role: Role) -> Vec<T> {
        let mut queues = self.0.lock();
        let line = queues.shared.of(role).get(key).into_iter();
        line.flat_map(SharedLine::turns)
            .map(|(_, holder)| holder.clone())
            .collect()
    }

    /// Returns what has a turn for the key of this name, and the slot, if the key is that of a permit.
    pub(crate) fn turns_at(&self, name: &[u8]) -> impl Iterator<Item = (T, Option<Slot>)> + use<T> {
        let queues = self.0.lock();
        let plain = queues.keys.by_key.get(name).and_then(WaitQueue::turn);
        let plain = plain.cloned().map(|turn| (turn, None));
        let others = |line: Option<&SharedLine<T>>, slot| -> Vec<_> {
            let turns = line.into_iter().flat_map(SharedLine::turns);
            turns.map(|(_, turn)| (turn.clone(), slot)).collect()
        };
        let read_write = others(queues.shared.read_write.get(name), None);
        let adopted = others(queues.shared.adopted.get(name), None);
        let permits = SlotKeys::parse(name).map_or_else(Vec::new, |(semaphore, slot)| {
            others(queues.shared.semaphores.get(semaphore), Some(slot))
        });
        let plain = plain.into_iter().chain(read_write).chain(adopted);
        plain.chain(permits)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_core::Permits;

    use Role::{LoneReader, Reader, Writer};

    use super::*;
    use crate::random::Random;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn policy() -> QueuePolicy {
        QueuePolicy {
            hands_over: true,
            streak: MS(30),
            attempt: MS(3),
            others_wait: false,
            poller_share: 0,
            max_waiters_per_key: 3,
            wait: MS(1000),
        }
    }

    fn permit() -> Role {
        Role::Permit(Permits::new(2).unwrap())
    }

    struct Line {
        queue: Queue<u64>,
        key: Key,
    }

    impl Line {
        fn new() -> Self {
            Self {
                queue: Queue::new(100, &Random::system()),
                key: Key::new("k").unwrap(),
            }
        }

        /// Returns whether it has a turn, or why it may not wait.
        fn join(&self, ticket: u64, role: Role) -> Result<bool, Refusal> {
            let (now, number) = (Timestamp::ZERO, Ticket::new(ticket));
            let joined = self
                .queue
                .join_shared(&self.key, role, number, now, &policy(), &ticket);
            let is_turn = |outcome| matches!(outcome, JoinOutcome::Turn { .. });
            joined.map(is_turn)
        }

        fn leave(&self, ticket: u64, role: Role) -> Vec<u64> {
            let (now, ticket) = (Timestamp::ZERO, Ticket::new(ticket));
            let left = self
                .queue
                .leave_shared(&self.key, role, ticket, now, Some(now), &policy());
            begun(left)
        }

        fn note_hold(&self, ticket: u64, role: Role) -> Vec<u64> {
            let (now, ticket) = (Timestamp::ZERO, Ticket::new(ticket));
            begun(self.queue.note_hold(&self.key, role, ticket, now))
        }

        fn scouts(&self, ticket: u64) -> bool {
            let ticket = Ticket::new(ticket);
            self.queue.note_none_free(&self.key, ticket);
            self.queue.make_scout(&self.key, ticket)
        }

        fn next_to_join(&self, ticket: u64) -> Option<u64> {
            let ticket = Ticket::new(ticket);
            self.queue.next_to_join(&self.key, ticket, |_| true)
        }

        fn hand_over(&self, ticket: u64, role: Role, after: Duration) -> Option<u64> {
            let (now, ticket) = (Timestamp::ZERO.saturating_add(after), Ticket::new(ticket));
            self.queue
                .shared_successor(&self.key, role, ticket, now, &policy(), |_| true)
        }
    }

    fn begun(follow_ups: Vec<FollowUp<u64>>) -> Vec<u64> {
        let waiter = |follow_up| match follow_up {
            FollowUp::StartTurn { waiter, .. } => waiter,
            other @ FollowUp::LookAgain { .. } => panic!("{other:?}"),
        };
        follow_ups.into_iter().map(waiter).collect()
    }

    #[test]
    fn there_are_as_many_turns_as_permits_and_the_next_in_line_comes_first() {
        let line = Line::new();
        let joined = [1, 2, 3, 4, 5].map(|ticket| line.join(ticket, permit()));
        assert_eq!(joined, [true, true, false, false, false].map(Ok));
        let full = Refusal::Full {
            waiting: 3,
            limit: 3,
            limited_by: crate::WaiterLimit::PerKey,
        };
        assert_eq!(line.join(6, permit()), Err(full));
        assert_eq!(line.queue.shared_turns(&line.key, permit()), [1, 2]);
        assert_eq!(line.leave(4, permit()), [0; 0], "it gave up");
        assert_eq!(line.leave(2, permit()), [3]);
        assert_eq!(line.leave(1, permit()), [5]);
        assert_eq!(line.leave(3, permit()), [0; 0]);
        assert_eq!(line.leave(5, permit()), [0; 0]);
        let size = line.queue.status();
        assert_eq!((size.keys, size.waiting), (0, 0));
    }

    #[test]
    fn only_one_asks_while_no_permit_is_free() {
        let line = Line::new();
        assert_eq!(line.join(1, permit()), Ok(true));
        assert!(line.scouts(1));
        assert_eq!(line.join(2, permit()), Ok(false));
        assert_eq!(line.note_hold(1, permit()), [2], "there may be more");
        assert!(line.scouts(2));
        assert_eq!(line.join(3, permit()), Ok(false));
        assert_eq!(line.leave(1, permit()), [0; 0], "the one that asks gets it");
        assert_eq!(line.leave(2, permit()), [3], "unless it gives up");
    }

    #[test]
    fn one_request_waits_for_a_permit_for_all_of_its_process() {
        let line = Line::new();
        let (queue, key) = (&line.queue, &line.key);
        assert_eq!(
            [1, 2].map(|ticket| line.join(ticket, permit())),
            [Ok(true); 2]
        );
        assert_eq!((queue.asking(key), queue.scout(key)), (vec![1, 2], None));
        assert!(line.scouts(2) && !line.scouts(1) && line.scouts(2));
        assert_eq!((queue.asking(key), queue.scout(key)), (vec![], Some(2)));
        assert_eq!(queue.found_none(key), [1, 2]);
        assert_eq!(line.join(3, permit()), Ok(false));
        assert_eq!(line.note_hold(2, permit()), [0; 0], "the other one waits");
        assert!(queue.has_permit(key) && queue.scout(key).is_none());
        assert!(line.scouts(1));
        assert_eq!(line.note_hold(1, permit()), [0; 0], "there are two permits");
        assert_eq!(line.leave(2, permit()), [3]);
    }

    #[test]
    fn one_that_counts_with_more_permits_is_a_better_scout() {
        let line = Line::new();
        let more = Role::Permit(Permits::new(3).unwrap());
        assert_eq!([line.join(1, permit()), line.join(2, more)], [Ok(true); 2]);
        assert!(line.scouts(1) && line.scouts(2) && !line.scouts(1));
    }

    #[test]
    fn as_many_ask_as_permits_were_seen_free_and_all_if_no_other_process_waits() {
        let line = Line::new();
        let role = Role::Permit(Permits::new(8).unwrap());
        assert_eq!(line.join(1, role), Ok(true));
        assert!(line.scouts(1));
        assert_eq!(
            [2, 3, 4].map(|ticket| line.join(ticket, role)),
            [Ok(false); 3]
        );
        assert_eq!(begun(line.queue.begin_permits(&line.key, 2)), [2, 3]);
        assert_eq!(line.join(5, role), Ok(false));
        line.queue.note_alone(&line.key, Ticket::new(1));
        assert_eq!(begun(line.queue.begin_all(&line.key)), [4, 5]);
    }

    #[test]
    fn a_permit_is_handed_over_for_a_limited_time() {
        let line = Line::new();
        for ticket in 1..=4 {
            assert!(line.join(ticket, permit()).is_ok());
        }
        assert_eq!(line.hand_over(1, permit(), MS(0)), None, "it has none");
        assert!(line.note_hold(1, permit()).is_empty());
        assert_eq!(line.hand_over(1, permit(), MS(29)), Some(3));
        assert_eq!(line.hand_over(1, permit(), MS(30)), None);
        assert_eq!(line.leave(1, permit()), [4], "a place is free");
    }

    #[test]
    fn one_reader_asks_and_those_behind_it_join() {
        let line = Line::new();
        assert_eq!(line.join(1, Reader), Ok(true));
        assert_eq!([2, 3].map(|it| line.join(it, Reader)), [Ok(false); 2]);
        assert_eq!(line.queue.open_turn(&line.key), None, "it has nothing yet");
        assert_eq!(line.next_to_join(1), Some(2));
        assert_eq!(line.next_to_join(1), Some(3));
        assert_eq!(line.next_to_join(1), None);
        assert!(line.note_hold(1, Reader).is_empty());
        assert_eq!(line.queue.open_turn(&line.key), Some(1));
        assert_eq!(line.queue.status().waiting, 0);
    }

    #[test]
    fn readers_that_cannot_join_ask_one_after_the_other_beside_those_that_hold() {
        let line = Line::new();
        assert!(line.join(1, Reader).is_ok());
        assert!(line.join(2, Reader).is_ok());
        assert!(line.join(3, Reader).is_ok());
        assert_eq!(line.note_hold(1, Reader), [2]);
        assert_eq!(line.queue.open_turn(&line.key), None, "another one asks");
        assert_eq!(line.join(4, LoneReader), Ok(true), "no writer waits");
        assert_eq!(line.note_hold(2, Reader), [0; 0], "it asks");
        assert_eq!(line.note_hold(4, Reader), [3]);
        assert_eq!(line.queue.shared_turns(&line.key, Reader), [1, 2, 3, 4]);
    }

    #[test]
    fn a_writer_waits_for_readers_and_keeps_later_ones_waiting() {
        let line = Line::new();
        assert!(line.join(1, Reader).is_ok());
        line.note_hold(1, Reader);
        assert_eq!(line.join(2, Writer), Ok(true), "beside the reader");
        assert_eq!(line.queue.open_turn(&line.key), None, "a writer asks");
        for (who, role) in [(3, Reader), (4, LoneReader), (5, Writer)] {
            assert_eq!(line.join(who, role), Ok(false));
        }
        assert!(line.join(6, Writer).is_err(), "three wait");
        assert_eq!(line.next_to_join(1), None);
        assert_eq!(line.leave(1, Reader), [0; 0]);
        assert_eq!(line.leave(5, Writer), [0; 0], "it gives up");
        assert_eq!(line.leave(2, Writer), [3, 4]);
        assert_eq!(line.leave(3, Reader), [0; 0]);
        assert_eq!(line.leave(4, Reader), [0; 0]);
        let size = line.queue.status();
        assert_eq!((size.keys, size.waiting), (0, 0));
    }

    #[test]
    fn a_writer_hands_over_to_the_next_writer_for_a_limited_time() {
        let line = Line::new();
        assert!(line.join(1, Writer).is_ok());
        assert!(line.join(2, Writer).is_ok());
        assert!(line.join(3, Reader).is_ok());
        assert_eq!(line.hand_over(1, Writer, MS(0)), None, "it has nothing yet");
        assert!(line.note_hold(1, Reader).is_empty());
        let late = line.hand_over(1, Writer, MS(30));
        assert_eq!(late, None, "others should have their turn");
        assert_eq!(line.hand_over(1, Writer, MS(29)), Some(2));
        let again = line.hand_over(1, Writer, MS(29));
        assert_eq!(again, None, "a reader is the next");
        assert_eq!(line.next_to_join(1), None, "it holds the lock alone");
        line.queue.note_downgrade(&line.key, Ticket::new(1));
        // Beside the one that was a writer.
        assert_eq!(line.next_to_join(1), Some(3));
    }
}
