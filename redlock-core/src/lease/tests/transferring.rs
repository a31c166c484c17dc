//! A lock that one client gives away and another adopts.

use super::*;

/// The token of the client that gave the lock away.
fn giver() -> Token {
    Nonce::new(1).token(1)
}

/// A lease that adopts, before the votes come. The giver's validity ends at 500 ms.
fn adopting() -> Driven {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.adopt(at(0), giver(), at(500), None));
    driven
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
    let mut driven = adopting();
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
