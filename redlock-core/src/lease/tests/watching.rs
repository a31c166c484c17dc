//! Waiting for a taken key: probes, notifications and delays.

use super::*;

/// The time for which a client holds the key in these tests.
const HOLD: Duration = Duration::from_millis(20);

pub(super) fn taken(until: u64) -> Reply {
    Reply::Taken { until: at(until) }
}

/// A lease whose first attempt failed after 1 ms, since another client holds all keys.
fn contended() -> Driven {
    contended_with(config().retry)
}

fn contended_with(retry: RetrySchedule) -> Driven {
    let mut driven = probing(retry);
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    assert_sent!(driven, 1.., Release, Probe);
    driven
}

pub(super) fn probing(retry: RetrySchedule) -> Driven {
    Driven::new(LeaseConfig {
        retry: retry.with_probes(),
        ..config()
    })
}

#[test]
fn tries_again_as_soon_as_a_quorum_is_free() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    driven.freed(at(5), [4, 0]);
    assert_eq!(driven.lease.attempts(), 1);
    driven.freed(at(6), [3]);
    assert_eq!(driven.lease.attempts(), 2);
    driven.reply(at(7), &[Granted; 3]);
    assert!(driven.is_held(at(7)));
}

#[test]
fn tries_again_when_a_quorum_has_expired() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(9), taken(7), taken(8), Unknown, taken(800)]);
    assert_eq!(driven.due(), at(9));
    driven.timeout(at(9));
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn probes_again_without_a_notification() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    for probes in 2..5 {
        driven.wait();
        assert!(matches!(driven.last().operation, Operation::Probe { .. }));
        assert_eq!(driven.lease.attempts(), 1);
        assert_eq!(driven.sent.len(), 2 + probes);
    }
    // The key was released, and no notification came.
    let due = driven.due();
    driven.reply(due.saturating_sub(MS(1)), &[Reply::Free; 3]);
    assert_eq!(driven.lease.attempts(), 2);
}

/// Many leases that wait would otherwise give slow nodes more and more to do.
#[test]
fn awaits_the_answers_to_its_probe_before_it_tries() {
    let mut driven = contended();
    driven.lease.set_notified(true);
    driven.reply(at(2), &[taken(9000), taken(9000)]);
    let probe = driven.last().round;
    while driven.due() < at(700) {
        driven.wait();
    }
    assert_eq!(driven.lease.attempts(), 1);
    assert_eq!(driven.last().round, probe, "one is enough");
    let mut silent = driven.clone();
    driven.reply_to(probe, at(700), 2, &[Unknown, Refused, taken(9000)]);
    driven.wait();
    assert_eq!(driven.lease.attempts(), 1, "it is taken");
    assert!(driven.last().round > probe);
    // Nothing more will be known of this probe.
    silent.reply_to(probe, at(700), 2, &[Unknown; 3]);
    assert!(silent.wait() < at(900));
    assert_eq!(silent.lease.attempts(), 2);
}

#[test]
fn tries_without_a_probe_if_too_few_nodes_answer_one() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900), taken(900), Unknown, Refused, Unknown]);
    let due = driven.due();
    assert!(due < at(201));
    driven.timeout(due);
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn attempts_that_fail_back_off_until_another_client_is_seen_to_have_the_key() {
    /// Only after more than five failures can a delay be longer than this.
    const LONG_DELAY: Duration = Duration::from_millis(16);
    let mut driven = contended();
    let mut now = at(1);
    // Returns the longest delay before one of these attempts.
    let mut attempts = |is_seen_taken, count| {
        let mut longest = Duration::ZERO;
        for _ in 0..count {
            if is_seen_taken {
                driven.reply(now, &[taken(5000); 5]);
                driven.freed(now, 0..5);
            }
            if let Some(Operation::Probe { .. }) = driven.operations().last() {
                driven.reply(now, &[Reply::Free; 5]);
            }
            while let Some(Operation::Probe { .. }) = driven.operations().last() {
                let due = driven.due().max(now);
                longest = longest.max(due.saturating_duration_since(now));
                now = due;
                driven.timeout(now);
            }
            driven.reply(now, &[Granted, Denied, Denied, Denied]);
        }
        longest
    };
    assert!(attempts(false, 12) > LONG_DELAY);
    attempts(true, 1);
    assert_eq!(attempts(true, 30), Duration::ZERO, "however often it loses");
}

#[test]
fn gives_up_at_the_deadline() {
    let mut driven = contended();
    while driven.end().is_none() {
        driven.reply(driven.due().saturating_sub(MS(1)), &[taken(5000); 5]);
        driven.wait();
    }
    let tries = driven.count(|it| matches!(it, Operation::Probe { .. })) as u32;
    assert!(tries > 3, "{tries}");
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, tries));
}

#[test]
fn an_attempt_after_a_wait_in_the_queue_keeps_the_deadline() {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire(at(400), at(450)));
    driven.reply(at(401), &[Denied; 3]);
    let due = driven.due();
    assert!(due < at(450), "{due:?}");
    driven.timeout(at(450));
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
}

#[test]
fn a_handed_over_lock_may_be_held_for_max_hold_again() {
    let max_hold = MS(2000);
    let validity = MS(900);
    let mut driven = Driven::held();
    let mut now = at(0);
    for _ in 0..20 {
        now = driven.wait();
        if let Some(Operation::Extend { .. }) = driven.operations().last() {
            driven.reply(now, &[Granted; 3]);
        }
        if now >= at(1500) {
            assert!(driven.run(|lease| lease.hand_over(now)));
            driven.run(|lease| lease.claim(now));
            break;
        }
    }
    let handed_over = now;
    while driven.is_held(now) {
        now = driven.wait();
        if let Some(Operation::Extend { .. }) = driven.operations().last() {
            driven.reply(now, &[Granted; 3]);
        }
    }
    assert_eq!(driven.late_end(), lost(LossReason::MaxHold));
    let held = now.saturating_duration_since(handed_over);
    assert!(held > max_hold && held <= max_hold + validity, "{held:?}");
    assert!(
        !driven.run(|lease| lease.hand_over(now)),
        "a lost lock is not handed over"
    );
}

#[test]
fn a_lock_whose_renewal_has_ended_is_renewed_at_once_after_a_handover() {
    let mut driven = Driven::held();
    driven.config().keep_alive = KeepAlive::every(MS(300), MS(310), config().validity).unwrap();
    driven.timeout(at(300));
    driven.reply(at(301), &[Granted; 3]);
    driven.run(|lease| lease.hand_over(at(700)));
    driven.run(|lease| lease.claim(at(700)));
    assert_eq!(driven.due(), at(700));
}

#[test]
fn an_answer_from_before_the_notification_is_not_trusted() {
    let mut driven = contended();
    let probe = driven.last().round;
    for index in 0..5 {
        driven.run(|lease| lease.probe_again(node(index)));
    }
    driven.reply_to(probe, at(3), 0, &[taken(900); 5]);
    driven.reply_to(probe, at(3), 0, &[Reply::Free; 5]);
    assert_eq!(driven.lease.attempts(), 2, "the key is free on all nodes");
}

#[test]
fn nodes_that_report_a_free_key_and_deny_it_are_not_tried_without_a_pause() {
    /// An attempt in each step would be 5000 attempts.
    const MOST_ATTEMPTS: u32 = 100;
    let mut driven = contended();
    for step in 0..5000 {
        let now = at(1).saturating_add(Duration::from_micros(100) * step);
        match driven.last().operation {
            Operation::Probe { .. } => driven.reply(now, &[Reply::Free; 5]),
            _ => driven.reply(now, &[Denied; 5]),
        }
        driven.timeout(now);
    }
    let attempts = driven.lease.attempts();
    assert!(attempts < MOST_ATTEMPTS, "{attempts} in half a second");
}

#[test]
fn a_number_of_attempts_counts_probes_and_keeps_their_pace() {
    for is_notified in [false, true] {
        let retry = RetrySchedule::new(HOLD..=MS(30)).unwrap();
        let mut driven = contended_with(retry.with_max_attempts(6));
        driven.lease.set_notified(is_notified);
        let mut millis = 2;
        while driven.end().is_none() {
            driven.reply(at(millis), &[taken(5000); 5]);
            let due = driven.due();
            let delay = due.saturating_duration_since(at(millis));
            assert!(delay <= MS(30), "{delay:?}");
            millis = due.as_nanos().div_ceil(1_000_000);
            driven.timeout(at(millis));
        }
        assert!(millis >= 5 * 20, "it ended after {millis} ms");
        let probes = driven.count(|it| matches!(it, Operation::Probe { .. }));
        assert_eq!(probes, 6 - 1, "the first try was an attempt");
        assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 6));
    }
}

#[test]
fn a_key_that_a_scheduled_probe_finds_free_is_tried_at_once() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    let due = driven.wait();
    driven.reply(due, &[Reply::Free; 3]);
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn only_a_wait_for_a_taken_key_lasts_until_the_deadline() {
    // The time that is left is shorter than every delay.
    let closes = |replies: &[Reply]| {
        let mut driven = probing(config().retry);
        driven.run(|lease| lease.acquire(at(0), at(10)));
        driven.reply(at(1), replies);
        driven.late_end().is_some()
    };
    assert!(!closes(&[Denied; 3]), "the key may be free before");
    assert!(closes(&[Unknown; 3]), "no node is expected to answer");
}
