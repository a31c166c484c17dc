//! Requests that may hold something at the same time: permits of a semaphore, and readers.

use redlock_core::Timestamp;

use super::{
    Arrival, FollowUp, Pace, Queue, QueuePlace, Role, beside::Beside, key_queue::KeyQueue,
};
use crate::Key;

impl<T: Clone> Queue<T> {
    /// Notes that a lease has got its lock or permit. Others may ask now: one, if it had to wait for the permit.
    #[must_use]
    pub(crate) fn note_hold(&mut self, place: QueuePlace<'_>, now: Timestamp) -> Vec<FollowUp<T>> {
        let QueuePlace { keys, role, .. } = place;
        // Nobody comes in beside a plain lock.
        if role == Role::Lock {
            return Vec::new();
        }
        let queue = self.keys.of(role).by_key.get_mut(keys.first());
        let Some(beside) = queue.and_then(KeyQueue::beside_mut) else {
            return Vec::new();
        };
        let has_waited = beside.waits_for_permit(place.arrival);
        beside.note_hold(place.arrival, now);
        self.advance(role, keys, now, Pace::after(has_waited, false))
    }

    // Permits.

    /// Notes whether a lease has found no permit free, and has not found since that no other process waits.
    pub(crate) fn note_none_found(&mut self, key: &Key, arrival: Arrival, found_none: bool) {
        self.in_semaphore(key, |it| it.note_none_found(arrival, found_none));
    }

    /// Makes a lease that has found no permit free the [scout](Beside::make_scout) of its process unless there is one.
    /// Returns whether it is the scout.
    pub(crate) fn make_scout(&mut self, key: &Key, arrival: Arrival) -> bool {
        self.in_semaphore(key, |it| it.make_scout(arrival))
    }

    /// Returns whether a lease has a permit.
    pub(crate) fn has_permit(&mut self, key: &Key) -> bool {
        self.in_semaphore(key, |it| it.is_held())
    }

    /// Returns the scout of a semaphore, if there is one.
    pub(crate) fn scout(&mut self, key: &Key) -> Option<T> {
        self.in_semaphore(key, |it| it.scouting().cloned())
    }

    /// Returns those that have found no permit free, and wait for one, in order of arrival.
    pub(crate) fn found_none(&mut self, key: &Key) -> Vec<T> {
        self.in_semaphore(key, |it| it.found_none().cloned().collect())
    }

    /// Returns those that ask for a permit, and have not found that none is free.
    pub(crate) fn asking(&mut self, key: &Key) -> Vec<T> {
        self.in_semaphore(key, |it| it.asking().cloned().collect())
    }

    /// Returns what this says of the queue of a semaphore, or the default if there is none.
    fn in_semaphore<R: Default>(&mut self, key: &Key, ask: impl FnOnce(&mut Beside<T>) -> R) -> R {
        let queue = self.keys.semaphores.by_key.get_mut(key);
        let beside = queue.and_then(KeyQueue::beside_mut);
        beside.map(ask).unwrap_or_default()
    }

    // Readers.

    /// Notes that the writer with this arrival has become a reader, which others may join.
    pub(crate) fn note_downgrade(&mut self, key: &Key, arrival: Arrival) {
        let queue = self.keys.locks.by_key.get_mut(key);
        if let Some(beside) = queue.and_then(KeyQueue::beside_mut) {
            beside.note_downgrade(arrival);
        }
    }

    /// Returns the lease of the readers that a new reader may join.
    pub(crate) fn open_turn(&self, key: &Key) -> Option<T> {
        self.keys.locks.by_key.get(key)?.open_turn().cloned()
    }

    /// Removes the next waiter, if it is a reader that may join those with this arrival.
    pub(crate) fn take_next_to_join(
        &mut self,
        key: &Key,
        arrival: Arrival,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let queue = self.keys.locks.by_key.get_mut(key)?;
        let waiter = queue.take_next_to_join(arrival, fits)?;
        self.waiting -= 1;
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_core::Permits;

    use Role::{Reader, Writer};

    use super::*;
    use crate::{
        engine::queue::{JoinOutcome, Refusal, tests::ROOMY},
        key::KeySet,
        random::Random,
    };

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn permit() -> Role {
        Role::Permit(Permits::new(2).unwrap())
    }

    struct Line {
        queue: Queue<u64>,
        key: Key,
        keys: KeySet,
    }

    impl Line {
        fn new() -> Self {
            let key = Key::new("k").unwrap();
            Self {
                queue: Queue::new(100, &Random::system()),
                keys: key.clone().into(),
                key,
            }
        }

        /// Returns whether it has a turn, or why it may not wait.
        fn join(&mut self, arrival: u64, role: Role) -> Result<bool, Refusal> {
            let place = place(&self.keys, arrival, role);
            let joined = self.queue.join(place, Timestamp::ZERO, &ROOMY, &arrival);
            joined.map(|outcome| matches!(outcome, JoinOutcome::Turn { .. }))
        }

        fn leave(&mut self, arrival: u64, role: Role) -> Vec<u64> {
            let (now, place) = (Timestamp::ZERO, place(&self.keys, arrival, role));
            begun(self.queue.leave(place, now, Some(now), &ROOMY))
        }

        fn note_hold(&mut self, arrival: u64, role: Role) -> Vec<u64> {
            let place = place(&self.keys, arrival, role);
            begun(self.queue.note_hold(place, Timestamp::ZERO))
        }

        fn advance(&mut self, role: Role, pace: Pace) -> Vec<u64> {
            begun(self.queue.advance(role, &self.keys, Timestamp::ZERO, pace))
        }

        fn scouts(&mut self, arrival: u64) -> bool {
            let arrival = Arrival::new(arrival);
            self.queue.note_none_found(&self.key, arrival, true);
            self.queue.make_scout(&self.key, arrival)
        }

        fn next_to_join(&mut self, arrival: u64) -> Option<u64> {
            let arrival = Arrival::new(arrival);
            self.queue.take_next_to_join(&self.key, arrival, |_| true)
        }

        fn hand_over(&mut self, arrival: u64, role: Role, after: Duration) -> Option<u64> {
            let (held, place) = (Timestamp::ZERO, place(&self.keys, arrival, role));
            let now = held.saturating_add(after);
            let next = self
                .queue
                .take_successor(place, now, held, &ROOMY, |_| true);
            next.next()
        }
    }

    fn place(keys: &KeySet, arrival: u64, role: Role) -> QueuePlace<'_> {
        let arrival = Arrival::new(arrival);
        QueuePlace {
            keys,
            role,
            arrival,
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
    fn one_request_waits_for_a_permit_for_all_of_its_process() {
        let mut line = Line::new();
        let key = line.key.clone();
        assert_eq!(
            [1, 2].map(|arrival| line.join(arrival, permit())),
            [Ok(true); 2]
        );
        assert_eq!(
            (line.queue.asking(&key), line.queue.scout(&key)),
            (vec![1, 2], None)
        );
        assert!(line.scouts(2) && !line.scouts(1) && line.scouts(2));
        assert_eq!(
            (line.queue.asking(&key), line.queue.scout(&key)),
            (vec![], Some(2))
        );
        assert_eq!(line.queue.found_none(&key), [1, 2]);
        assert_eq!(line.join(3, permit()), Ok(false));
        assert_eq!(line.note_hold(2, permit()), [0; 0], "the other one waits");
        assert!(line.queue.has_permit(&key) && line.queue.scout(&key).is_none());
        assert!(line.scouts(1));
        assert_eq!(line.note_hold(1, permit()), [0; 0], "there are two permits");
        assert_eq!(line.leave(2, permit()), [3]);
    }

    #[test]
    fn as_many_ask_as_permits_were_seen_free_and_all_if_no_other_process_waits() {
        let mut line = Line::new();
        let role = Role::Permit(Permits::new(8).unwrap());
        assert_eq!(line.join(1, role), Ok(true));
        assert!(line.scouts(1));
        assert_eq!(
            [2, 3, 4].map(|arrival| line.join(arrival, role)),
            [Ok(false); 3]
        );
        assert_eq!(line.advance(role, Pace::for_seen(2)), [2, 3]);
        assert_eq!(line.join(5, role), Ok(false));
        let first = Arrival::new(1);
        line.queue.note_none_found(&line.key, first, false);
        assert_eq!(line.advance(role, Pace::ALL), [4, 5]);
    }

    #[test]
    fn a_permit_is_handed_over_for_a_limited_time() {
        let mut line = Line::new();
        for arrival in 1..=4 {
            assert!(line.join(arrival, permit()).is_ok());
        }
        assert_eq!(line.hand_over(1, permit(), MS(0)), None, "it has none");
        assert!(line.note_hold(1, permit()).is_empty());
        assert_eq!(line.hand_over(1, permit(), MS(9)), Some(3));
        assert_eq!(line.hand_over(1, permit(), MS(10)), None);
        assert_eq!(line.leave(1, permit()), [4], "a place is free");
    }

    #[test]
    fn readers_join_only_readers_beside_whom_no_writer_asks() {
        let mut line = Line::new();
        assert_eq!(
            [line.join(1, Writer), line.join(2, Reader)],
            [Ok(true), Ok(false)]
        );
        assert_eq!(line.note_hold(1, Writer), [0; 0]);
        assert_eq!(line.next_to_join(1), None, "it is no reader yet");
        assert_eq!(line.leave(2, Reader), [0; 0], "it gives up");
        line.queue.note_downgrade(&line.key, Arrival::new(1));
        assert_eq!(
            [line.join(3, Writer), line.join(4, Reader)],
            [Ok(true), Ok(false)]
        );
        assert_eq!(line.next_to_join(1), None, "a writer asks");
    }
}
