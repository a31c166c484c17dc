//! A lock that one client gives away and another adopts.

use super::*;

/// The token of the client that gave the lock away.
fn giver() -> Token {
    Nonce::new(1).token(1)
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
