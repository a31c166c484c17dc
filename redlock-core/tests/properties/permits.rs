//! What a lease of a semaphore does after it has looked at the slots.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*};
use redlock_core::{
    AcquireFailure, Eligibility, End, Lease, NodeId, Nonce, Operation, Quorum, Reply, Slot,
    SlotSet, Status, Timestamp,
};

use crate::{
    check,
    drive::{Semaphore, attempting, semaphores},
};

const NOW: Timestamp = Timestamp::ZERO;

/// The answers to the look of a request that may not wait, of one node after the other. `None` is no answer.
#[derive(Clone, Debug)]
struct Look {
    semaphore: Semaphore,
    nonce: u128,
    answers: Vec<Option<SlotSet>>,
}

fn looks() -> impl Strategy<Value = Look> {
    let free = vec(0..6usize, 0..6);
    let free = free.prop_map(|free| free.into_iter().filter_map(Slot::new).collect());
    let answers = vec(option::weighted(0.9, free), 1..=7);
    (semaphores(), any::<u128>(), answers).prop_map(|(semaphore, nonce, answers)| Look {
        semaphore,
        nonce,
        answers,
    })
}

impl Look {
    fn quorum(&self) -> Quorum {
        Quorum::majority(self.answers.len()).expect("1 to 7")
    }

    fn replies(&self) -> impl Iterator<Item = (NodeId, Reply)> {
        let replies = self.answers.iter().map(|free| {
            let Some(free) = *free else {
                return Reply::Unknown;
            };
            let taken = self.semaphore.permits.slots().difference(free);
            let (next, until) = match taken.iter().next() {
                Some(next) => (next, NOW.saturating_add(Duration::from_millis(700))),
                None => (Slot::new(0).expect("the first"), Timestamp::MAX),
            };
            Reply::Slots {
                free,
                taken,
                next,
                until,
            }
        });
        self.quorum().all().iter().zip(replies.collect::<Vec<_>>())
    }

    /// Returns the slot that a lease asks for after these answers, or how the lease ends.
    fn through_a_lease(&self) -> Result<Slot, AcquireFailure> {
        let second = Duration::from_secs(1);
        let mut config = attempting(self.answers.len(), second..=second);
        config.retry = config.retry.with_probes();
        let mut lease = Lease::new(config, Nonce::new(self.nonce));
        self.semaphore.set_up(&mut lease);
        lease.acquire(NOW, NOW);
        let denials = self.quorum().all().iter().map(|node| (node, Reply::Denied));
        answer(&mut lease, denials);
        answer(&mut lease, self.replies());
        match (lease.poll_transmit(), lease.status()) {
            (Some(transmit), Status::Asking) => {
                let is_attempt = matches!(transmit.operation, Operation::Acquire { .. });
                assert!(is_attempt, "{transmit:?}");
                Ok(lease.slot().expect("it is a semaphore"))
            }
            (None, Status::Ended(End::Exhausted { failure, .. })) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    /// How many nodes have said that the slot is free, or else taken.
    fn count(&self, slot: Slot, is_free: bool) -> usize {
        let says_so = |free: &&SlotSet| free.contains(slot) == is_free;
        self.answers.iter().flatten().filter(says_so).count()
    }
}

/// Answers the last request.
fn answer(lease: &mut Lease, replies: impl Iterator<Item = (NodeId, Reply)>) {
    let mut round = None;
    while let Some(transmit) = lease.poll_transmit() {
        round = Some(transmit.round);
    }
    let round = round.expect("it has sent something");
    for (node, reply) in replies {
        lease.handle_reply(NOW, round, node, reply, Eligibility::ALWAYS);
    }
}

#[test]
fn a_request_that_may_not_wait_fails_only_if_no_slot_is_seen_free_on_a_majority() {
    check(2000, &looks(), |look| {
        let votes = look.quorum().votes();
        let is_free = |slot: &Slot| look.count(*slot, true) >= votes;
        let free: SlotSet = look.semaphore.wanted().iter().filter(is_free).collect();
        let is_taken = |slot: Slot| look.count(slot, false) > look.quorum().tolerated_failures();
        let shows_it = look.answers.iter().flatten().count() >= votes
            || look.semaphore.wanted().iter().all(is_taken);
        match look.through_a_lease() {
            Ok(slot) => prop_assert!(free.contains(slot), "{slot} of {free:?}"),
            Err(AcquireFailure::Contended) => {
                prop_assert!(free.is_empty() && shows_it);
            }
            Err(failure) => {
                prop_assert_eq!(failure, AcquireFailure::NoQuorum);
                prop_assert!(free.is_empty() && !shows_it);
            }
        }
        Ok(())
    });
}
