//! Semaphores: which slot a lease asks for, what it looks at, and when it gives up.

use super::{watching::probing, *};

/// A lease that asks for one of four permits.
fn semaphore() -> Driven {
    seeded(7)
}

fn seeded(nonce: u128) -> Driven {
    let mut driven = probing(config().retry);
    driven.lease.nonce = Nonce::new(nonce);
    driven.lease.set_share(permits(4));
    driven
}

fn slot(index: usize) -> Slot {
    Slot::new(index).unwrap()
}

fn slots(indices: &[usize]) -> SlotSet {
    indices.iter().map(|index| slot(*index)).collect()
}

/// A node on which only these slots are free. The others expire after five seconds, the lowest of them first.
fn free(indices: &[usize]) -> Reply {
    let all = [0, 1, 2, 3];
    let lowest = all.into_iter().find(|index| !indices.contains(index));
    Reply::Slots {
        free: slots(indices),
        taken: slots(&all).difference(slots(indices)),
        next: slot(lowest.unwrap_or(0)),
        until: lowest.map_or(Timestamp::MAX, |_| at(5000)),
    }
}

fn slot_freed(driven: &mut Driven, now: Timestamp, index: usize, freed: usize) {
    driven.run(|lease| lease.handle_freed(now, node(index), Some(slot(freed))));
}

/// A lease that was denied the first slot after 1 ms, and waits for the answers to its look.
fn denied() -> Driven {
    let mut driven = semaphore();
    driven.lease.prefer_slots(slots(&[0]));
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    driven
}

#[test]
fn a_first_attempt_without_a_preference_asks_for_any_slot_that_is_not_excluded() {
    let mut chosen = SlotSet::EMPTY;
    for nonce in 0..100 {
        let mut driven = seeded(nonce);
        driven.lease.prefer_slots(slots(&[1]));
        driven.lease.exclude_slots(slots(&[1]));
        driven.acquire(at(0));
        chosen.insert(driven.lease.slot().unwrap());
    }
    assert_eq!(chosen, slots(&[0, 2, 3]));
}

#[test]
fn a_failed_attempt_releases_its_slot_looks_at_all_and_asks_for_one_that_is_free() {
    let mut driven = denied();
    assert_sent!(driven, 1.., Release, Probe);
    let first = Access::Slot(slot(0));
    assert_eq!(driven.accesses(), [first, first, Access::Slots]);
    // Slot 2 is free on a majority, slot 3 is not.
    driven.reply(at(2), &[free(&[2, 3]), free(&[2, 3]), free(&[2])]);
    assert_eq!(driven.lease.attempts(), 2, "at once");
    assert_eq!(driven.lease.slot(), Some(slot(2)));
    driven.reply(at(3), &[Granted; 3]);
    assert!(driven.is_held(at(3)));
}

#[test]
fn the_expiry_of_one_slot_on_a_majority_starts_an_attempt_at_this_slot() {
    let mut driven = denied();
    let ends = |index, until| Reply::Slots {
        free: SlotSet::EMPTY,
        taken: slots(&[0, 1, 2, 3]),
        next: slot(index),
        until: at(until),
    };
    let replies = [ends(3, 9), ends(2, 5), ends(3, 7), ends(3, 8), Unknown];
    driven.reply(at(2), &replies);
    assert_eq!(driven.due(), at(9));
    driven.timeout(at(9));
    assert_eq!(driven.lease.slot(), Some(slot(3)));
}

#[test]
fn an_answer_is_in_doubt_only_for_the_slot_that_has_changed_since() {
    let mut driven = denied();
    for node in 0..5 {
        slot_freed(&mut driven, at(2), node, 1);
    }
    let probe = driven.last().round;
    driven.reply_to(probe, at(3), 0, &[free(&[1]); 3]);
    assert_eq!(driven.lease.attempts(), 1, "the answers may be older");
    let is_new = |it: &Transmit| it.round == probe && it.slots == slots(&[1]);
    assert!(driven.sent[3..6].iter().all(is_new));
    driven.reply_to(probe, at(4), 0, &[free(&[1]); 3]);
    assert_eq!(driven.lease.slot(), Some(slot(1)));
}

/// A request that may not wait, and was denied the first slot.
fn denied_at_once() -> Driven {
    let mut driven = semaphore();
    driven.lease.prefer_slots(slots(&[0]));
    driven.run(|lease| lease.acquire(at(0), at(0)));
    driven.reply(at(1), &[Denied; 3]);
    assert_sent!(driven, 1.., Release, Probe);
    driven
}

#[test]
fn a_request_that_may_not_wait_stands_in_no_line() {
    let mut driven = semaphore();
    driven.lease.stand_in_line(true);
    driven.run(|lease| lease.acquire(at(0), at(0)));
    driven.reply(at(1), &[Denied; 3]);
    driven.reply(at(2), &[free(&[]); 3]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
}

#[test]
fn a_request_that_may_not_wait_ends_when_its_look_shows_no_free_slot() {
    let mut driven = denied_at_once();
    driven.reply(at(2), &[free(&[1]), free(&[2]), free(&[])]);
    assert_eq!(driven.end(), None, "slot 1 or 2 may be free on the others");
    driven.reply(at(2), &[Refused, Refused, Refused, free(&[1, 2])]);
    assert_eq!(driven.end(), None, "slot 1 or 2 may be free on a majority");
    driven.reply(at(3), &[Refused; 5]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
    // One is free, but excluded.
    let mut driven = denied_at_once();
    driven.lease.exclude_slots(slots(&[3]));
    driven.reply(at(2), &[free(&[3]); 3]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
}

#[test]
fn two_of_four_nodes_are_enough_to_show_contention() {
    let mut driven = semaphore();
    driven.config().quorum = Quorum::majority(4).unwrap();
    driven.run(|lease| lease.acquire(at(0), at(0)));
    driven.reply(at(1), &[Denied; 2]);
    driven.reply(at(2), &[free(&[]), free(&[]), Refused, Refused]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
}

#[test]
fn a_look_that_no_node_answers_ends_when_an_attempt_would() {
    let mut driven = denied_at_once();
    assert_eq!(driven.due(), at(901));
    driven.timeout(at(901));
    assert_eq!(driven.end(), exhausted(AcquireFailure::NoQuorum, 1));
}

#[test]
fn a_deadline_during_the_first_look_does_not_cut_it_off() {
    let mut driven = semaphore();
    driven.lease.prefer_slots(slots(&[0]));
    driven.run(|lease| lease.acquire(at(0), at(2)));
    driven.reply(at(1), &[Denied; 3]);
    assert_eq!(driven.due(), at(2));
    driven.timeout(at(2));
    assert_eq!(driven.end(), None);
    driven.reply(at(3), &[free(&[3]); 3]);
    assert_eq!(driven.lease.slot(), Some(slot(3)));
    driven.reply(at(4), &[Denied; 3]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 2));
}

#[test]
fn a_client_waits_in_the_line_once_it_has_seen_all_slots_taken() {
    let mut driven = semaphore();
    driven.lease.stand_in_line(true);
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    assert!(!driven.lease.is_in_line(), "others may be free");
    driven.reply(at(2), &[free(&[]); 3]);
    assert!(driven.lease.is_in_line() && driven.lease.finds_all_slots_taken(at(2)));
    driven.run(|lease| lease.look(at(3)));
    driven.reply(at(4), &[free(&[1]); 3]);
    assert_eq!(driven.told, [Event::Looked { is_free: true }]);
}

#[test]
fn slots_that_one_lease_has_seen_free_are_tried_by_others_in_the_line() {
    let mut driven = denied();
    driven.reply(at(2), &[free(&[1, 2, 3]); 3]);
    let own = [driven.lease.slot().unwrap()].into_iter().collect();
    let spare = driven.lease.take_spare_slots();
    assert_eq!(spare, slots(&[1, 2, 3]).difference(own));
    assert!(
        driven.lease.take_spare_slots().is_empty(),
        "they are told once"
    );

    let mut other = semaphore();
    assert!(
        !other.lease.try_slots(at(2), spare),
        "it is not in the line"
    );
    other.lease.stand_in_line(true);
    other.acquire(at(0));
    other.reply(at(1), &[Denied; 3]);
    other.reply(at(2), &[free(&[]); 3]);
    assert!(!other.lease.try_slots(at(3), SlotSet::EMPTY));
    other.run(|lease| assert!(lease.try_slots(at(3), spare)));
    assert!(spare.contains(other.lease.slot().unwrap()));
    other.reply(at(4), &[Denied; 3]);
    assert!(other.lease.is_in_line(), "without another look");
}
