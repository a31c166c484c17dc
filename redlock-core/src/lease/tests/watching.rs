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
