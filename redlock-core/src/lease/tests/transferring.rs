//! A lock that one client gives away and another adopts.

use super::*;

/// The token of the client that gave the lock away.
fn giver() -> Token {
    Nonce::new(1).token(1)
}

/// A lease that adopts, before the votes come. The giver's validity ends at 500 ms.
fn adopting(fence: Option<FencingToken>) -> Driven {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.adopt(at(0), giver(), at(500), fence));
    driven
}

#[test]
fn a_lock_that_is_given_away_is_neither_renewed_nor_released() {
    let mut driven = Driven::held();
    driven.timeout(at(300));
    driven.sent.clear();
    assert_eq!(driven.run(|lease| lease.give(at(310))), Some(at(900)));
    assert_eq!(driven.late_end(), Some(End::GivenAway));
    // The extension that is under way ends nothing and begins nothing, nor does the time.
    driven.reply_to(driven.lease.outbox.last_round(), at(311), 0, &[Denied; 5]);
    driven.timeout(at(900));
    driven.run(|lease| lease.release(at(900)));
    driven.run(Lease::abandon);
    assert_eq!(driven.lease.poll_timeout(), None);
    assert!(driven.sent.is_empty());
    assert_eq!(driven.end(), Some(End::GivenAway));
}

#[test]
fn only_a_held_lock_with_one_key_and_one_owner_is_given_away() {
    let mut new = Driven::new(config());
    assert_eq!(new.run(|lease| lease.give(at(0))), None);
    let mut late = Driven::held();
    assert_eq!(late.run(|lease| lease.give(at(900))), None);
    assert_eq!(late.end(), lost(LossReason::Expired));
    let set_ups: [fn(&mut Lease); 3] = [
        Lease::set_several_keys,
        |lease| lease.set_share(Share::Reader),
        |lease| lease.set_share(permits(2)),
    ];
    for set_up in set_ups {
        let mut driven = Driven::new(config());
        driven.run(set_up);
        driven.acquire(at(0));
        driven.reply(at(1), &[Granted; 3]);
        assert_eq!(driven.run(|lease| lease.give(at(1))), None);
        assert!(driven.is_held(at(1)), "as before");
    }
    let mut writer = Driven::new(config());
    writer.run(|lease| lease.set_share(Share::Writer));
    writer.acquire(at(0));
    writer.reply(at(1), &[Granted; 3]);
    assert_eq!(writer.run(|lease| lease.give(at(1))), Some(at(900)));
}

#[test]
fn a_majority_that_has_the_givers_token_is_enough() {
    let mut driven = adopting(None);
    let token = driven.lease.token();
    let operation = Operation::Adopt {
        giver: giver(),
        token,
        ttl: config().validity.ttl(),
        fence: None,
    };
    assert_eq!(driven.operations(), [operation]);
    driven.reply(at(1), &[Granted, Denied, Granted]);
    assert!(!driven.is_held(at(1)));
    driven.reply(at(1), &[Granted, Denied, Granted, Granted]);
    // Valid from its own start, for longer than the giver was.
    assert_eq!(driven.lease.valid_until(at(1)), Some(at(900)));
    assert_eq!(driven.lease.attempts(), 1);
    // It is renewed and repaired like any other.
    driven.run(|lease| lease.claim(at(1)));
    driven.wait();
    let repair = driven.sent[1];
    assert!(matches!(repair.operation, Operation::Acquire { token: it, .. } if it == token));
    assert_eq!(repair.nodes, only(&[1]));
}

#[test]
fn an_adoption_that_fails_releases_its_token_and_is_not_tried_again() {
    let denied = [Granted, Denied, Denied, Granted, Denied];
    let failed = [Granted, Unknown, Refused, Granted, Unknown];
    for (replies, failure) in [
        (denied, AcquireFailure::Contended),
        (failed, AcquireFailure::NoQuorum),
    ] {
        let mut driven = adopting(None);
        driven.reply(at(1), &replies);
        assert_eq!(driven.end(), exhausted(failure, 1));
        assert_eq!(driven.operations()[1..], [release_of(driven.lease.token())]);
        assert_eq!(driven.sent[1].nodes, NodeSet::first(5));
    }
}

#[test]
fn an_adoption_succeeds_only_within_the_validity_of_the_giver() {
    let mut late = adopting(None);
    late.reply(at(499), &[Granted, Granted]);
    late.reply(at(500), &[Granted, Granted, Granted]);
    assert_eq!(late.end(), exhausted(AcquireFailure::TooSlow, 1));
    let mut silent = adopting(None);
    assert_eq!(silent.due(), at(500));
    silent.timeout(at(500));
    assert_eq!(silent.end(), exhausted(AcquireFailure::TooSlow, 1));
    // A short ttl of its own ends it earlier.
    let mut short = Driven::new(config());
    short.run(|lease| lease.adopt(at(0), giver(), at(5000), None));
    assert_eq!(short.due(), at(900));
}

#[test]
fn votes_that_do_not_count_adopt_nothing() {
    let mut driven = adopting(None);
    let held_back = quarantined(Granted, at(700));
    driven.reply(at(1), &[held_back, held_back, held_back]);
    let failure = AcquireFailure::Quarantined { until: at(700) };
    assert_eq!(driven.end(), exhausted(failure, 1));
}

#[test]
fn the_fence_of_an_adopted_lock_may_take_a_second_round() {
    let mut driven = adopting(Some(FencingToken::new(7)));
    let counter = FencingToken::new(9);
    driven.reply(at(1), &[Reply::Outbid { counter }; 3]);
    let fence = FencingToken::new(10);
    let token = driven.lease.token();
    assert_eq!(driven.operations()[1], Operation::Fence { token, fence });
    // The lock is this client's since a majority has its token, so the giver's validity does not matter any more.
    driven.reply(at(600), &[Granted; 3]);
    assert_eq!(driven.told, [acquired(Some(fence), &[0, 1, 2])]);
}

#[test]
fn only_a_new_lease_with_one_key_and_one_owner_adopts() {
    let mut held = Driven::held();
    let before = held.lease.clone();
    held.run(|lease| lease.adopt(at(1), giver(), at(500), None));
    assert_eq!(held.lease, before);
    let mut reader = Driven::new(config());
    reader.run(|lease| lease.set_share(Share::Reader));
    reader.run(|lease| lease.adopt(at(0), giver(), at(500), None));
    assert!(reader.sent.is_empty());
}
