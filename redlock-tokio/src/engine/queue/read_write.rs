//! The queue of a lock for readers and writers.

use std::collections::hash_map;

use redlock_core::Timestamp;

use super::{
    Entry, FollowUp, JoinOutcome, Queue, Refused, Role, Ticket, outcome::admit,
    read_write_line::ReadWriteLine,
};
use crate::{Key, engine::shrink, options::QueuePolicy};

impl<T: Clone> Queue<T> {
    /// Takes a turn for this lock if there is room. Otherwise waits in the queue. `enter` makes what has the turn, or waits,
    /// and must not call back.
    ///
    /// # Errors
    ///
    /// Fails if the policy does not let it wait.
    pub(crate) fn join_readers_or_writers(
        &self,
        key: &Key,
        role: Role,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        enter: impl FnOnce(Entry) -> T,
    ) -> Result<JoinOutcome<T>, Refused<T>> {
        let mut queues = self.0.lock();
        let queues = &mut *queues;
        let waiting = queues.read_write.get(key).map_or(0, ReadWriteLine::waiting);
        let line = queues.read_write.get(key);
        if line.is_none_or(|line| line.may_begin(role)) {
            let line = queues.read_write.entry(key.clone());
            let line = line.or_insert_with(ReadWriteLine::new);
            line.give_turn(ticket, role, enter(Entry::Turn));
            let backs_off = role == Role::Writer && queues.recent.begin_turn(key, now, policy);
            return Ok(JoinOutcome::Turn { backs_off });
        }
        admit(
            [waiting].into_iter(),
            queues.waiting,
            queues.max_waiting,
            policy,
        )?;
        if let Some(line) = queues.read_write.get_mut(key) {
            line.push(ticket, role, enter(Entry::Line));
            queues.waiting += 1;
        }
        Ok(JoinOutcome::Waiting { follow_up: None })
    }

    /// Leaves the queue of this lock, after having held it since `held`, if at all.
    #[must_use]
    pub(crate) fn leave_readers_or_writers(
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
        let hash_map::Entry::Occupied(mut line) = queues.read_write.entry(key.clone()) else {
            return Vec::new();
        };
        let mut backs_off = false;
        if line.get_mut().end_turn(ticket) {
            if role == Role::Writer {
                backs_off = queues.recent.end_turn(key, now, held, policy);
            }
        } else {
            queues.waiting -= usize::from(line.get_mut().remove(ticket));
        }
        let follow_ups = line.get_mut().advance(backs_off);
        queues.waiting -= follow_ups.len();
        if line.get().is_empty() {
            line.remove();
            shrink::map(&mut queues.read_write);
        }
        follow_ups
    }

    /// Notes that the lease with this ticket has got the lock. The next reader may ask, if it has not joined.
    #[must_use]
    pub(crate) fn note_hold(&self, key: &Key, ticket: Ticket, now: Timestamp) -> Vec<FollowUp<T>> {
        let mut queues = self.0.lock();
        let Some(line) = queues.read_write.get_mut(key) else {
            return Vec::new();
        };
        line.note_hold(ticket, now);
        let follow_ups = line.advance(false);
        queues.waiting -= follow_ups.len();
        follow_ups
    }

    /// Notes that the writer with this ticket has become a reader, which others may join.
    pub(crate) fn note_downgrade(&self, key: &Key, ticket: Ticket) {
        if let Some(line) = self.0.lock().read_write.get_mut(key) {
            line.note_downgrade(ticket);
        }
    }

    /// Puts another in the place of what has a turn with this ticket, if it still has it.
    pub(crate) fn replace_read_write_turn(&self, key: &Key, ticket: Ticket, holder: &T) {
        if let Some(line) = self.0.lock().read_write.get_mut(key) {
            line.replace_turn(ticket, holder);
        }
    }

    /// Returns the lease of the readers that a new reader may join.
    pub(crate) fn open_turn(&self, key: &Key) -> Option<T> {
        self.0.lock().read_write.get(key)?.open_turn().cloned()
    }

    /// Removes the next waiter, if it is a reader that may join those with this ticket.
    pub(crate) fn next_to_join(
        &self,
        key: &Key,
        ticket: Ticket,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let mut queues = self.0.lock();
        let waiter = queues.read_write.get_mut(key)?.next_to_join(ticket, fits)?;
        queues.waiting -= 1;
        Some(waiter)
    }

    /// Removes the next waiter, for the writer with this ticket to hand its lock over to it. The turn stays where it is.
    /// Returns `None` if the lock is to be released instead.
    pub(crate) fn next_writer(
        &self,
        key: &Key,
        ticket: Ticket,
        now: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let mut queues = self.0.lock();
        let is_short = |since| now.saturating_duration_since(since) < policy.streak;
        let line = queues.read_write.get_mut(key)?;
        let waiter = line.next_writer(ticket, is_short, fits)?;
        queues.waiting -= 1;
        Some(waiter)
    }

    /// Returns all that have a turn for this lock, in order of arrival.
    pub(crate) fn read_write_turns(&self, key: &[u8]) -> Vec<T> {
        let queues = self.0.lock();
        let turns = queues.read_write.get(key).map(ReadWriteLine::turns);
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
    use crate::random::Random;
    use Role::{LoneReader, Reader, Writer};

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
                key: Key::new("catalogue").unwrap(),
            }
        }

        /// Returns whether it has a turn. `None` if it may not wait.
        fn join(&self, ticket: u64, role: Role) -> Option<bool> {
            let (now, number) = (Timestamp::ZERO, Ticket::new(ticket));
            let joined =
                self.queue
                    .join_readers_or_writers(&self.key, role, number, now, &policy(), |_| ticket);
            let is_turn = |outcome| matches!(outcome, JoinOutcome::Turn { .. });
            joined.map(is_turn).ok()
        }

        fn leave(&self, ticket: u64, role: Role) -> Vec<u64> {
            let (now, ticket) = (Timestamp::ZERO, Ticket::new(ticket));
            begun(self.queue.leave_readers_or_writers(
                &self.key,
                role,
                ticket,
                now,
                Some(now),
                &policy(),
            ))
        }

        fn note_hold(&self, ticket: u64) -> Vec<u64> {
            let ticket = Ticket::new(ticket);
            begun(self.queue.note_hold(&self.key, ticket, Timestamp::ZERO))
        }

        fn next_to_join(&self, ticket: u64) -> Option<u64> {
            let ticket = Ticket::new(ticket);
            self.queue.next_to_join(&self.key, ticket, |_| true)
        }

        fn next_writer(&self, ticket: u64, after: Duration) -> Option<u64> {
            let now = Timestamp::ZERO.saturating_add(after);
            let ticket = Ticket::new(ticket);
            self.queue
                .next_writer(&self.key, ticket, now, &policy(), |_| true)
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
    fn one_reader_asks_and_those_behind_it_join() {
        let line = Line::new();
        assert_eq!(line.join(1, Reader), Some(true));
        assert_eq!(
            [2, 3].map(|ticket| line.join(ticket, Reader)),
            [Some(false); 2]
        );
        assert_eq!(line.queue.open_turn(&line.key), None, "it has nothing yet");
        assert_eq!(
            [line.next_to_join(1), line.next_to_join(1)],
            [Some(2), Some(3)]
        );
        assert_eq!(line.next_to_join(1), None);
        assert!(line.note_hold(1).is_empty());
        assert_eq!(line.queue.open_turn(&line.key), Some(1));
        assert_eq!(line.queue.status().waiting, 0);
    }

    #[test]
    fn readers_that_cannot_join_ask_one_after_the_other_beside_those_that_hold() {
        let line = Line::new();
        line.join(1, Reader);
        line.join(2, Reader);
        line.join(3, Reader);
        assert_eq!(line.note_hold(1), [2]);
        assert_eq!(line.queue.open_turn(&line.key), None, "another one asks");
        assert_eq!(line.join(4, LoneReader), Some(true), "no writer waits");
        assert_eq!(line.note_hold(2), [0; 0], "it asks");
        assert_eq!(line.note_hold(4), [3]);
        assert_eq!(line.queue.read_write_turns(b"catalogue"), [1, 2, 3, 4]);
    }

    #[test]
    fn a_writer_waits_for_readers_and_keeps_later_ones_waiting() {
        let line = Line::new();
        line.join(1, Reader);
        line.note_hold(1);
        assert_eq!(line.join(2, Writer), Some(false));
        assert_eq!(line.queue.open_turn(&line.key), None, "a writer waits");
        assert_eq!(
            [line.join(3, Reader), line.join(4, LoneReader)],
            [Some(false); 2]
        );
        assert_eq!(line.join(5, Writer), None, "three wait");
        assert_eq!(line.next_to_join(1), None);
        assert_eq!(line.leave(1, Reader), [2]);
        assert_eq!(line.leave(2, Writer), [3, 4]);
        assert_eq!(
            (line.leave(3, Reader), line.leave(4, Reader)),
            (vec![], vec![])
        );
        let size = line.queue.status();
        assert_eq!((size.keys, size.waiting), (0, 0));
    }

    /// The two have queues of their own, and the nodes keep them apart.
    #[test]
    fn a_lock_that_ends_lets_readers_and_writers_of_its_key_look() {
        let line = Line::new();
        let (plain, now) = (crate::key::KeySet::from(line.key.clone()), Timestamp::ZERO);
        let lock = |number, keys: &crate::key::KeySet| {
            let ticket = Ticket::new(number);
            let joined = line.queue.join(keys, ticket, now, &policy(), |_| number);
            assert!(matches!(joined, Ok(JoinOutcome::Turn { .. })));
            line.queue.leave(keys, ticket, now, Some(now), &policy())
        };
        assert_eq!(lock(1, &plain), []);
        line.join(2, Reader);
        assert_eq!(lock(3, &plain), [FollowUp::LookAgain { lease: 2 }]);
        assert_eq!(lock(4, &Key::new("another").unwrap().into()), []);
    }

    #[test]
    fn a_writer_hands_over_to_the_next_writer_for_a_limited_time() {
        let line = Line::new();
        line.join(1, Writer);
        line.join(2, Writer);
        line.join(3, Reader);
        assert_eq!(line.next_writer(1, MS(0)), None, "it has nothing yet");
        assert!(line.note_hold(1).is_empty());
        assert_eq!(
            line.next_writer(1, MS(30)),
            None,
            "others should have their turn"
        );
        assert_eq!(line.next_writer(1, MS(29)), Some(2));
        assert_eq!(line.next_writer(1, MS(29)), None, "a reader is the next");
        assert_eq!(line.next_to_join(1), None, "it holds the lock alone");
        line.queue.note_downgrade(&line.key, Ticket::new(1));
        assert_eq!(
            line.next_to_join(1),
            Some(3),
            "beside the one that was a writer"
        );
    }
}
