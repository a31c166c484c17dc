//! Renewal, repair and loss of a held lock.

use super::*;

#[test]
fn a_failed_extension_keeps_the_validity_releases_nothing_and_is_tried_again() {
    let mut driven = Driven::held();
    driven.timeout(at(300));
    driven.reply(at(350), &[Unknown, Refused, Unknown]);
    assert_eq!(driven.told, extend_failed(at(900)));
    assert_eq!(driven.sent.len(), 1, "no release");
    let retry = driven.due();
    assert!(retry > at(350) && retry < at(400), "{retry:?}");
    driven.timeout(retry);
    driven.reply(retry, &[Granted; 3]);
    assert!(driven.lease.valid_until(at(1000)).is_some());
}

#[test]
fn a_lock_that_was_handed_over_has_to_be_claimed_again() {
    let mut driven = Driven::held();
    assert!(driven.run(|lease| lease.hand_over(at(10))));
    assert_eq!(driven.due(), at(900));
    driven.run(|lease| lease.claim(at(20)));
    assert_eq!(driven.due(), at(300));
    driven.run(|lease| lease.hand_over(at(30)));
    driven.run(|lease| lease.claim(at(900)));
    assert_eq!(driven.end(), lost(LossReason::Expired), "too late");
}

#[test]
fn a_later_release_comes_at_its_time_and_the_lock_is_not_renewed() {
    let mut driven = Driven::held();
    let token = driven.lease.token();
    assert!(driven.run(|lease| lease.release_at(at(100), at(700))));
    driven.reply(at(101), &[Granted; 5]);
    driven.run(|lease| {
        lease.claim(at(300));
        assert!(!lease.extend(at(300)) && !lease.hand_over(at(300)) && !lease.downgrade(at(300)));
        lease.handle_timeout(at(399));
    });
    // Until the keys expire by themselves, and no longer.
    let check = |ttl| Operation::Extend {
        token,
        ttl,
        shortens: true,
    };
    let validity = driven.config().validity;
    let kept = |millis| validity.lasting(MS(millis)).unwrap().ttl();
    assert_eq!(driven.operations(), [check(kept(600))]);
    let valid_until = driven.lease.valid_until(at(399));
    assert_eq!(valid_until, Some(at(900)), "as before");
    // It is checked when it would be renewed.
    assert_eq!(driven.due(), at(400));
    driven.timeout(at(400));
    assert_eq!(driven.operations()[1..], [check(kept(300))]);
    assert_eq!(driven.due(), at(700));
    driven.sent.clear();
    driven.timeout(at(700));
    assert_eq!(driven.operations(), [release_of(token)]);
    driven.reply(at(701), &[Granted; 3]);
    assert_eq!(driven.told, [Event::Checked]);
    assert_eq!(driven.late_end(), released(ReleaseVerdict::Released));
}

/// A lock that is to be released later, renewed or not, after its first check.
fn released_later(renews: bool) -> Driven {
    let mut driven = Driven::held();
    if !renews {
        driven.config().keep_alive = KeepAlive::on_demand(MS(50));
    }
    driven.run(|lease| lease.release_at(at(100), at(800)));
    driven.reply(at(101), &[Granted; 3]);
    driven.sent.clear();
    driven.told.clear();
    driven
}

#[test]
fn a_lock_to_be_released_later_ends_when_a_majority_has_lost_its_keys() {
    for renews in [true, false] {
        let mut reported = released_later(renews);
        reported.key_changed(at(200), 0..3);
        reported.reply(at(201), &[Denied; 3]);
        assert_eq!(reported.sent.len(), 1, "the other keys still block others");
        let not_held = released(ReleaseVerdict::NotHeld);
        assert_eq!(reported.end(), not_held, "nobody is there to lose it");
    }
    // Nodes that report nothing.
    let mut checked = released_later(true);
    checked.timeout(at(400));
    checked.reply(at(401), &[Denied, Granted, Denied, Denied]);
    assert_eq!(checked.end(), released(ReleaseVerdict::NotHeld));
}

#[test]
fn reports_about_a_lock_that_nobody_has_taken_wait_for_its_holder() {
    let mut driven = Driven::granted();
    driven.sent.clear();
    driven.key_changed(at(2), 0..3);
    assert_eq!(driven.operations(), []);
    driven.run(|lease| lease.claim(at(3)));
    driven.reply(at(4), &[Denied; 3]);
    assert_eq!(driven.late_end(), lost(LossReason::KeysLost));
}

#[test]
fn reports_that_no_majority_can_have_the_key_are_checked_at_once() {
    let mut driven = Driven::held();
    let report = |driven: &mut Driven, node| {
        driven.key_changed(at(100), [node]);
        driven.sent.len()
    };
    assert_eq!(report(&mut driven, 0), 0);
    assert_eq!(report(&mut driven, 0), 0, "the same node");
    assert_eq!(report(&mut driven, 1), 0, "three others are a majority");
    assert_eq!(report(&mut driven, 2), 1);
    driven.reply(at(101), &[Denied; 3]);
    assert_eq!(driven.end(), lost(LossReason::KeysLost));
    assert_eq!(report(&mut driven, 3), 2, "nothing but the release");
}

#[test]
fn reports_that_prove_wrong_lead_to_one_extension_before_the_next_renewal() {
    let mut driven = Driven::held();
    let report_all = |driven: &mut Driven, now| {
        driven.key_changed(at(now), 0..5);
        driven.sent.len()
    };
    assert_eq!(report_all(&mut driven, 100), 1);
    // Those that come while it is under way may be about the same change.
    assert_eq!(report_all(&mut driven, 101), 1);
    driven.reply(at(102), &[Granted; 5]);
    assert_eq!(report_all(&mut driven, 103), 1, "not again and again");
    let due = driven.due();
    assert_eq!(due, at(400), "a renewal is due 300 ms after the extension");
    driven.timeout(due);
    assert_eq!(driven.sent.len(), 2);
    assert_eq!(report_all(&mut driven, 401), 2);
    driven.reply(at(402), &[Granted; 3]);
    assert_eq!(driven.sent.len(), 3, "those are checked once it has ended");
    assert!(driven.is_held(at(402)));
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
    let longest = config().validity.ttl();
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
fn a_repair_brings_the_counter_back_with_the_key() {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire_fenced(at(0), at(1000), FencingToken::new(7)));
    driven.reply(at(1), &[Granted; 3]);
    driven.run(|lease| lease.extend(at(300)));
    let extension = driven.last().round;
    driven.reply_to(extension, at(301), 3, &[Denied]);
    driven.reply_to(extension, at(301), 0, &[Granted; 3]);
    let (token, fence) = (driven.lease.token(), FencingToken::new(7));
    let repair = Operation::Acquire {
        token,
        ttl: config().validity.ttl(),
        fence: Some(fence),
    };
    assert_eq!(driven.sent[2].nodes, only(&[3]));
    assert_eq!(driven.sent[2].operation, repair);
    // Node 4 has not answered: it may have the key and a smaller counter.
    assert_eq!(driven.sent[3].nodes, only(&[4]));
    assert_eq!(driven.sent[3].operation, Operation::Fence { token, fence });
    // A loss that is told late.
    driven.reply_to(extension, at(302), 4, &[Denied]);
    assert_eq!(driven.last().nodes, only(&[4]));
    assert_eq!(driven.last().operation, repair);
}
