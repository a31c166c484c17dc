//! Semaphores: which slot a lease asks for, what it looks at, and when it gives up.

use super::{
    watching::{probing, taken},
    *,
};

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
fn an_attempt_asks_all_nodes_for_the_slot_that_is_preferred() {
    let mut driven = semaphore();
    driven.lease.prefer_slots(slots(&[3]));
    driven.acquire(at(0));
    assert_eq!(driven.sent[0].nodes, NodeSet::first(5));
    assert_eq!(driven.accesses(), [Access::Slot(slot(3))]);
    assert_eq!(driven.lease.slot(), Some(slot(3)));
    driven.reply(at(1), &[Granted; 3]);
    assert!(driven.is_held(at(1)));
}

#[test]
fn a_lock_has_no_slot() {
    let mut driven = Driven::held();
    driven.lease.prefer_slots(slots(&[3]));
    driven.lease.exclude_slots(slots(&[0]));
    driven.run(|lease| lease.set_share(permits(4)));
    assert_eq!(driven.lease.slot(), None, "it has started");
    driven.timeout(at(300));
    assert_eq!(driven.accesses(), [Access::Exclusive]);
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
fn a_permit_keeps_its_slot_in_extensions_repairs_and_the_release() {
    let mut driven = semaphore();
    driven.acquire(at(0));
    driven.reply(at(1), &[Granted, Granted, Granted, Denied]);
    driven.run(|lease| lease.claim(at(1)));
    let held = driven.lease.slot().unwrap();
    driven.lease.prefer_slots(slots(&[(held.index() + 1) % 4]));
    driven.lease.exclude_slots(slots(&[held.index()]));
    driven.timeout(at(300));
    driven.reply(at(301), &[Granted, Granted, Denied, Granted]);
    driven.run(|lease| lease.release(at(302)));
    let is_ours = |it: &Transmit| it.access == Access::Slot(held);
    assert!(driven.sent.iter().all(is_ours), "{:?}", driven.sent);
    assert_eq!(driven.lease.slot(), Some(held));
    let repairs = driven.count(|it| matches!(it, Operation::Acquire { .. }));
    assert_eq!(repairs, 3);
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
fn clients_choose_different_ones_of_the_free_slots() {
    let mut chosen = SlotSet::EMPTY;
    for nonce in 0..100 {
        let mut driven = seeded(nonce);
        driven.lease.prefer_slots(slots(&[0]));
        driven.acquire(at(0));
        driven.reply(at(1), &[Denied; 3]);
        driven.lease.exclude_slots(slots(&[2]));
        driven.reply(at(2), &[free(&[0, 2, 3]); 3]);
        assert_eq!(driven.lease.attempts(), 2);
        chosen.insert(driven.lease.slot().unwrap());
    }
    assert_eq!(chosen, slots(&[0, 3]));
}

#[test]
fn slots_that_are_free_on_different_nodes_are_no_free_slot() {
    let mut driven = denied();
    let [first, second, third] = [0, 1, 2].map(|index| free(&[index]));
    driven.reply(at(2), &[first, first, second, second, third]);
    assert_eq!(driven.lease.attempts(), 1);
    slot_freed(&mut driven, at(3), 4, 0);
    assert_eq!(driven.lease.attempts(), 2);
    assert_eq!(driven.lease.slot(), Some(slot(0)));
}

#[test]
fn a_notification_for_one_slot_on_a_majority_starts_an_attempt_at_this_slot() {
    let mut driven = denied();
    driven.reply(at(2), &[free(&[]); 5]);
    for node in 0..3 {
        slot_freed(&mut driven, at(5), node, 1 + node);
    }
    assert!(matches!(driven.last().operation, Operation::Probe { .. }));
    assert_eq!(driven.sent.len(), 3, "no slot is free on a majority");
    slot_freed(&mut driven, at(6), 3, 2);
    slot_freed(&mut driven, at(6), 4, 2);
    assert_eq!(driven.lease.slot(), Some(slot(2)));
    assert_eq!(driven.lease.attempts(), 2);
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

#[test]
fn a_slot_that_is_not_excluded_any_more_is_asked_for_if_it_is_free() {
    let mut driven = denied();
    driven.lease.exclude_slots(slots(&[2]));
    driven.reply(at(2), &[free(&[2]); 5]);
    assert_eq!(driven.lease.attempts(), 1);
    driven.lease.exclude_slots(SlotSet::EMPTY);
    assert_eq!(driven.due(), at(1), "overdue");
    driven.timeout(at(3));
    assert_eq!(driven.lease.slot(), Some(slot(2)));
    assert_eq!(driven.lease.attempts(), 2);
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
fn a_request_that_may_not_wait_looks_once_and_tries_once_more() {
    let mut driven = denied_at_once();
    driven.reply(at(2), &[free(&[1]); 3]);
    assert_eq!(driven.lease.slot(), Some(slot(1)));
    let mut held = driven.lease.clone();
    let round = driven.last().round;
    for node in NodeSet::first(3).iter() {
        held.handle_reply(at(3), round, node, Granted, Eligibility::ALWAYS);
    }
    assert!(held.valid_until(at(3)).is_some());
    // Or another client is faster.
    driven.reply(at(3), &[Denied; 3]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 2));
    assert!(matches!(driven.last().operation, Operation::Release { .. }));
    assert_eq!(driven.last().access, Access::Slot(slot(1)));
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
fn a_look_that_few_nodes_answer_shows_no_contention() {
    let mut driven = denied_at_once();
    driven.reply(at(2), &[free(&[]), Refused, free(&[]), Unknown, Refused]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::NoQuorum, 1));
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
fn a_limit_of_attempts_holds_for_looks_too() {
    let mut driven = probing(config().retry.with_max_attempts(1));
    driven.lease.set_share(permits(4));
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
}

#[test]
fn a_semaphore_whose_permits_all_stay_taken_is_given_up_at_the_deadline() {
    let mut driven = denied();
    while driven.end().is_none() {
        let due = driven.due();
        driven.reply(due.saturating_sub(MS(1)), &[free(&[]); 5]);
        driven.wait();
    }
    let tries = driven.count(|it| matches!(it, Operation::Probe { .. })) as u32;
    assert!(tries > 3, "{tries}");
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, tries));
}

#[test]
fn a_client_whose_turn_comes_asks_for_a_slot_that_others_have_left() {
    let mut driven = semaphore();
    driven.lease.prefer_slots(slots(&[0]));
    driven.lease.stand_in_line(false);
    driven.acquire(at(0));
    assert!(driven.sent.is_empty());
    driven.run(|lease| lease.proceed(at(10), false, Duration::ZERO));
    driven.reply(at(11), &[free(&[2]); 3]);
    assert_eq!(driven.lease.slot(), Some(slot(2)));
    assert_eq!(driven.lease.attempts(), 1);
}

#[test]
fn a_lock_that_is_asked_as_a_semaphore_is_the_case_of_one_slot() {
    let mut driven = semaphore();
    driven.lease.set_share(permits(1));
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    driven.reply(at(2), &[taken(900); 5]);
    driven.freed(at(5), 0..3);
    assert_eq!(driven.lease.attempts(), 2);
    assert_eq!(driven.lease.slot(), Some(slot(0)));
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

/// Each node reports another slot before it answers. So each answer is in doubt for one slot, and counts for the
/// others.
#[test]
fn notifications_of_other_slots_do_not_hide_that_one_is_free() {
    let mut driven = denied();
    for reporting in 0..5 {
        slot_freed(&mut driven, at(2), reporting, reporting % 4);
    }
    driven.reply(at(3), &[free(&[0, 1, 2, 3]); 4]);
    assert_eq!(driven.lease.attempts(), 2);
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
