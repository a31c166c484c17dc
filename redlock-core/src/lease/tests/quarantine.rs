//! Attempts while nodes have no vote yet.

use super::*;

/// A lease that asks nodes which have no vote until then, and when it had its verdict.
fn ask_fresh_nodes(until: Timestamp, budget: Duration) -> (Driven, Timestamp) {
    let mut driven = Driven::new(config());
    let mut now = at(0);
    driven.run(|lease| lease.acquire(now, now.saturating_add(budget)));
    loop {
        driven.reply(now, &[quarantined(Granted, until); 3]);
        if driven.lease.status() != Status::Asking {
            return (driven, now);
        }
        let due = driven.due();
        assert!(due > now, "{due:?} is not later than {now:?}");
        now = due;
        driven.timeout(now);
        if driven.lease.status() != Status::Asking {
            return (driven, now);
        }
    }
}

#[test]
fn a_quarantine_that_outlasts_the_budget_fails_at_its_end_and_is_rarely_asked() {
    let until = at(10_000);
    let (driven, now) = ask_fresh_nodes(until, MS(5000));
    assert_eq!(now, at(5000));
    let attempts = driven.lease.attempts();
    let failure = AcquireFailure::Quarantined { until };
    assert_eq!(driven.end(), exhausted(failure, attempts));
    assert!((5..=10).contains(&attempts), "{attempts} in 5 s");
    let operations = driven.operations();
    for pair in operations.chunks(2) {
        assert_eq!(pair[1], release_of(pair[0].token()), "each was set");
    }
}

#[test]
fn a_quarantine_that_ends_within_the_budget_is_waited_for_to_its_end() {
    for until in [at(1), at(400), at(3000), at(4999)] {
        let (driven, now) = ask_fresh_nodes(until, MS(5000));
        assert!(matches!(driven.told[..], [Event::Acquired { .. }]));
        assert!(
            now >= until && now < until.saturating_add(MS(20)),
            "{now:?}"
        );
    }
}

#[test]
fn without_a_budget_a_quarantine_is_not_waited_for() {
    let (driven, now) = ask_fresh_nodes(at(500), Duration::ZERO);
    assert!(matches!(driven.end(), Some(End::Exhausted { .. })));
    assert_eq!((now, driven.lease.attempts()), (at(0), 1));
}

#[test]
fn attempts_that_meet_a_quarantine_are_counted() {
    let mut config = config();
    config.retry = config.retry.with_max_attempts(2);
    let mut driven = Driven::new(config);
    driven.acquire(at(0));
    let replies = [quarantined(Granted, at(5000)); 3];
    driven.reply(at(1), &replies);
    let due = driven.wait();
    driven.reply(due, &replies);
    assert!(matches!(
        driven.end(),
        Some(End::Exhausted { tries: 2, .. })
    ));
}
