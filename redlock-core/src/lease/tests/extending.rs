//! Extensions by another ttl than the lock's own.

use super::*;

fn ttl(millis: u64) -> Ttl {
    Ttl::new(MS(millis)).unwrap()
}

/// A lock that only its holder extends, acquired at time zero.
fn held_without_renewal() -> Driven {
    let mut driven = Driven::held();
    driven.config().keep_alive = KeepAlive::on_demand(MS(5000));
    driven
}

/// Extends for this ttl, with the votes of a majority at once. Returns the ttl that was sent.
fn extend_for(driven: &mut Driven, now: Timestamp, millis: u64) -> u64 {
    assert!(driven.run(|lease| lease.extend_for(now, ttl(millis))));
    driven.reply(now, &[Granted; 3]);
    sent_ttl(driven)
}

fn sent_ttl(driven: &Driven) -> u64 {
    match driven.operations().last() {
        Some(Operation::Extend { ttl, .. } | Operation::Acquire { ttl, .. }) => ttl.as_millis(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_longer_extension_is_valid_for_its_ttl_less_its_drift() {
    let mut driven = held_without_renewal();
    driven.config().validity = Validity::new(ttl(1000), Drift::new(10, MS(100))).unwrap();
    assert_eq!(extend_for(&mut driven, at(100), 3000), 3000);
    // 3000 ms less 30 ms and 100 ms.
    assert_eq!(driven.told, extended(at(100 + 2870)));
    assert_eq!(driven.lease.valid_until(at(101)), Some(at(100 + 2870)));
}

#[test]
fn a_shorter_extension_never_shortens() {
    let mut driven = held_without_renewal();
    assert_eq!(extend_for(&mut driven, at(100), 200), 900, "to time 1000");
    assert_eq!(driven.lease.valid_until(at(101)), Some(at(900)));
    assert_eq!(extend_for(&mut driven, at(890), 200), 200);
    assert_eq!(driven.lease.valid_until(at(891)), Some(at(990)));
    assert_eq!(extend_for(&mut driven, at(891), 1), 199, "up to time 1090");
    assert_eq!(driven.lease.valid_until(at(892)), Some(at(990)));
}

#[test]
fn renewal_goes_on_by_the_own_ttl_and_keeps_what_was_gained() {
    let mut driven = Driven::held();
    assert_eq!(extend_for(&mut driven, at(100), 1700), 1700);
    let gained = Some(at(1700));
    for (now, sent) in [(400, 1400), (700, 1100)] {
        assert_eq!(driven.due(), at(now), "as usual");
        driven.timeout(at(now));
        assert_eq!(sent_ttl(&driven), sent, "no node drops the key earlier");
        driven.reply(at(now), &[Granted; 3]);
        assert_eq!(driven.lease.valid_until(at(now)), gained);
    }
    driven.timeout(at(1000));
    driven.reply(at(1000), &[Granted; 3]);
    assert_eq!(sent_ttl(&driven), 1000);
    assert_eq!(driven.lease.valid_until(at(1001)), Some(at(1900)));
}

#[test]
fn a_shorter_extension_does_not_put_renewal_off() {
    let mut driven = Driven::held();
    assert_eq!(extend_for(&mut driven, at(290), 1), 1000, "the own ttl");
    assert_eq!(driven.lease.valid_until(at(291)), Some(at(1190)));
    assert_eq!(driven.due(), at(590));
}

#[test]
fn an_extension_joins_one_for_as_long_and_takes_the_place_of_a_shorter_one() {
    let mut driven = Driven::held();
    assert!(driven.run(|lease| lease.extend_for(at(100), ttl(2000))));
    assert!(driven.run(|lease| lease.extend(at(101))));
    assert!(driven.run(|lease| lease.extend_for(at(102), ttl(2000))));
    assert_eq!(driven.sent.len(), 1);
    let shorter = driven.sent[0].round;
    assert!(driven.run(|lease| lease.extend_for(at(103), ttl(2001))));
    assert_eq!(driven.sent.len(), 2);
    driven.reply_to(shorter, at(104), 0, &[Granted; 5]);
    assert!(driven.told.is_empty(), "nobody asked for so little");
    driven.reply(at(105), &[Granted; 3]);
    assert_eq!(driven.told, extended(at(103 + 1901)));
}

#[test]
fn a_longer_extension_that_fails_changes_nothing() {
    let mut driven = Driven::held();
    driven.run(|lease| lease.extend_for(at(100), ttl(2000)));
    driven.reply(at(101), &[Unknown; 3]);
    assert_eq!(driven.told, extend_failed(at(900)));
    driven.wait();
    assert_eq!(sent_ttl(&driven), 1000);
}

#[test]
fn no_extension_starts_beyond_max_hold_however_short() {
    let mut driven = Driven::held();
    extend_for(&mut driven, at(100), 3000);
    assert!(!driven.run(|lease| lease.extend_for(at(2000), ttl(10))));
    driven.timeout(at(3000));
    assert_eq!(driven.late_end(), lost(LossReason::MaxHold));
}

#[test]
fn a_key_that_is_put_back_lives_as_long_as_the_others() {
    let mut driven = Driven::held();
    driven.run(|lease| lease.extend_for(at(100), ttl(2000)));
    driven.reply(at(150), &[Denied, Granted, Granted, Granted]);
    assert_eq!(sent_ttl(&driven), 1950, "up to time 2100");
    assert_eq!(driven.sent[1].nodes, NodeSet::first(1));
}

#[test]
fn a_release_waits_for_as_long_as_the_longest_key_may_live() {
    let mut driven = Driven::held();
    assert_eq!(driven.lease.longest_ttl(), ttl(1000));
    driven.run(|lease| lease.extend_for(at(100), ttl(2000)));
    driven.reply(at(101), &[Unknown; 3]);
    assert_eq!(driven.lease.longest_ttl(), ttl(2000));
    driven.run(|lease| lease.release(at(110)));
    assert_eq!(driven.due(), at(2110));
}

#[test]
fn a_node_that_would_have_dropped_or_kept_the_key_is_judged() {
    let mut driven = Driven::held();
    driven.timeout(at(300));
    let round = driven.sent[0].round;
    let judge = |driven: &Driven, now, remaining| {
        let lease = &driven.lease;
        lease.judge_remaining(at(now), round, MS(remaining))
    };
    let needed = MS(590);
    let too_short = Some(ExpiryAnomaly::TooShort { needed });
    let longest = ttl(1000);
    assert_eq!(judge(&driven, 310, 589), too_short, "valid until 900");
    assert_eq!(judge(&driven, 310, 590), None);
    assert_eq!(judge(&driven, 310, 2000), None, "clocks drift");
    let too_long = Some(ExpiryAnomaly::TooLong { longest });
    assert_eq!(judge(&driven, 310, 2001), too_long);
    // A reply after the verdict is judged by the validity before the extension.
    driven.reply(at(310), &[Granted; 3]);
    assert_eq!(judge(&driven, 310, 589), too_short);
    driven.run(|lease| lease.extend(at(400)));
    assert_eq!(judge(&driven, 410, 1), None, "another extension came since");
}

#[test]
fn what_decides_nothing_asks_for_no_votes() {
    let asks =
        |driven: &Driven| -> Vec<bool> { driven.sent.iter().map(|it| it.asks_for_votes).collect() };
    let mut held = Driven::held();
    held.timeout(at(300));
    held.reply(at(301), &[Denied, Granted, Granted, Granted]);
    held.run(|lease| lease.release(at(302)));
    // An extension, a repair, a release.
    assert_eq!(asks(&held), [true, false, true]);

    let mut failed = Driven::begun();
    failed.reply(at(1), &[Denied; 3]);
    // An attempt, and the release after it.
    assert_eq!(asks(&failed), [true, false]);
}
