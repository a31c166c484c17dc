//! Waiting for a key by looking at it.

use super::*;
use crate::{PollerShare, TurnLength, Turns};

fn taken(until: u64) -> Reply {
    Reply::Taken { until: at(until) }
}

/// A lease whose first attempt failed at 1, since another client holds all keys.
fn contended() -> Driven {
    let mut driven = Driven::new(LeaseConfig {
        retry: config().retry.with_probes(),
        ..config()
    });
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    assert!(matches!(
        driven.operations()[1..],
        [Operation::Release { .. }, Operation::Probe { .. }]
    ));
    driven
}

fn freed(driven: &mut Driven, now: Timestamp, node: usize) {
    driven.run(|lease| lease.handle_freed(now, NodeId::new(node).unwrap()));
}

/// Answers the looks by which it makes sure that the key is free.
fn confirm(driven: &mut Driven, now: Timestamp) {
    let attempts = driven.lease.attempts();
    for _ in 0..3 {
        if driven.lease.attempts() == attempts {
            driven.reply(now, &[Reply::Free; 3]);
        }
    }
}

fn turn(usual: Duration) -> TurnLength {
    TurnLength::new(usual, Ttl::new(MS(10_000)).unwrap())
}

#[test]
fn tries_again_as_soon_as_a_quorum_is_free() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    freed(&mut driven, at(5), 4);
    freed(&mut driven, at(5), 0);
    assert_eq!(driven.lease.attempts(), 1);
    freed(&mut driven, at(6), 3);
    confirm(&mut driven, at(6));
    assert_eq!(driven.lease.attempts(), 2);
    driven.reply(at(7), &[Granted; 3]);
    assert!(driven.is_held(at(7)));
}

#[test]
fn tries_again_when_a_quorum_has_expired() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(9), taken(7), taken(8), Unknown, taken(800)]);
    assert_eq!(driven.lease.poll_timeout(), Some(at(9)));
    driven.run(|lease| lease.handle_timeout(at(9)));
    confirm(&mut driven, at(9));
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn lets_others_be_faster_and_goes_first_when_it_has_waited_for_long() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    let mut probes = Vec::new();
    for round in 0..6 {
        let now = at(10 + round);
        let before = driven.sent.len();
        for node in 0..3 {
            freed(&mut driven, now, node);
        }
        probes.push(driven.sent.len() - before);
        if driven.lease.attempts() > 1 {
            break;
        }
        // Somebody else was faster.
        driven.reply(now, &[taken(900); 5]);
        assert_eq!(driven.lease.attempts(), 1);
    }
    assert_eq!(probes[0], 1, "it looks first");
    assert_eq!(driven.lease.attempts(), 2, "it does not look any more");
}

#[test]
fn looks_again_while_nobody_says_that_it_is_free() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    for probes in 2..5 {
        let due = driven.lease.poll_timeout().unwrap();
        driven.run(|lease| lease.handle_timeout(due));
        assert!(matches!(
            driven.operations().last(),
            Some(Operation::Probe { .. })
        ));
        assert_eq!(
            (driven.lease.attempts(), driven.sent.len()),
            (1, 2 + probes)
        );
    }
    // The key was released, and nobody told.
    let due = driven.lease.poll_timeout().unwrap();
    driven.reply(due.saturating_sub(MS(1)), &[Reply::Free; 3]);
    confirm(&mut driven, due.saturating_sub(MS(1)));
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn tries_blindly_where_too_few_nodes_answer_a_look() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900), taken(900), Unknown, Refused, Unknown]);
    let due = driven.lease.poll_timeout().unwrap();
    assert!(due < at(201));
    driven.run(|lease| lease.handle_timeout(due));
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn who_collides_again_and_again_stands_back() {
    let mut driven = contended();
    let mut now = at(1);
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        // All is free, but each time others are faster.
        driven.reply(now, &[Reply::Free; 5]);
        let due = driven.lease.poll_timeout().unwrap();
        if matches!(driven.operations().last(), Some(Operation::Probe { .. })) {
            longest = longest.max(due.saturating_duration_since(now));
            now = due;
            driven.run(|lease| lease.handle_timeout(now));
        }
        if driven.told.is_empty() {
            driven.reply(now, &[Granted, Denied, Denied, Denied]);
        }
        if !driven.told.is_empty() {
            break;
        }
    }
    assert!(longest > MS(16), "{longest:?}");
    let attempts = driven.lease.attempts();
    assert!((6..60).contains(&attempts), "{attempts} in a second");
}

#[test]
fn gives_up_at_the_end_of_the_budget() {
    let mut driven = contended();
    while driven.told.is_empty() {
        driven.reply(
            driven.lease.poll_timeout().unwrap().saturating_sub(MS(1)),
            &[taken(5000); 5],
        );
        let due = driven.lease.poll_timeout().unwrap();
        driven.run(|lease| lease.handle_timeout(due));
    }
    assert_eq!(
        driven.told,
        [Event::Exhausted {
            failure: AcquireFailure::Contended,
            attempts: 1,
        }]
    );
}

#[test]
fn queueing_takes_from_the_budget() {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire(at(400), at(450)));
    driven.reply(at(401), &[Denied; 3]);
    let due = driven.lease.poll_timeout().unwrap();
    assert!(due < at(450), "{due:?}");
    driven.run(|lease| lease.handle_timeout(at(450)));
    assert!(driven.lease.is_closed());
}

#[test]
fn a_lock_that_is_handed_over_may_be_held_for_as_long_again() {
    let mut driven = Driven::held();
    let mut now = at(0);
    for _ in 0..20 {
        now = driven.lease.poll_timeout().unwrap();
        driven.run(|lease| lease.handle_timeout(now));
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
        now = driven.lease.poll_timeout().unwrap();
        driven.run(|lease| lease.handle_timeout(now));
        if let Some(Operation::Extend { .. }) = driven.operations().last() {
            driven.reply(now, &[Granted; 3]);
        }
    }
    assert_eq!(driven.told.last(), Some(&Event::Lost(LossReason::MaxHold)));
    let held = now.saturating_duration_since(handed_over);
    assert!(held > MS(2000) && held <= MS(2900), "{held:?}");
    assert!(
        !driven.run(|lease| lease.hand_over(now)),
        "not what is lost"
    );
}

#[test]
fn what_is_handed_over_after_renewal_has_ended_is_renewed_at_once() {
    let mut driven = Driven::held();
    driven.lease.config.keep_alive = KeepAlive::every(MS(300), MS(310), config().validity).unwrap();
    driven.run(|lease| lease.handle_timeout(at(300)));
    driven.reply(at(301), &[Granted; 3]);
    driven.run(|lease| lease.hand_over(at(700)));
    driven.run(|lease| lease.claim(at(700)));
    assert_eq!(driven.lease.poll_timeout(), Some(at(700)));
}

#[test]
fn an_answer_from_before_the_news_is_not_the_last_word() {
    let mut driven = contended();
    let probe = driven.sent.last().unwrap().round;
    for node in 0..5 {
        driven.run(|lease| lease.probe_again(NodeId::new(node).unwrap()));
    }
    driven.reply_to(probe, at(3), 0, &[taken(900); 5]);
    driven.reply_to(probe, at(3), 0, &[Reply::Free; 5]);
    confirm(&mut driven, at(4));
    assert_eq!(
        driven.lease.attempts(),
        2,
        "free on all nodes, and they have said so"
    );
}

#[test]
fn news_of_anothers_acquisition_is_no_news_that_it_is_free() {
    let mut driven = contended();
    driven.reply(at(2), &[Reply::Free; 5]);
    // It makes sure; meanwhile another takes the key, which is a change as well.
    for node in 0..5 {
        freed(&mut driven, at(3), node);
    }
    for _ in 0..2 {
        let probe = driven.sent.last().unwrap().round;
        driven.reply_to(probe, at(3), 0, &[taken(900); 5]);
    }
    assert_eq!(
        driven.lease.attempts(),
        1,
        "all nodes have said that it is taken"
    );
}

#[test]
fn nodes_that_say_free_and_deny_are_not_tried_without_a_pause() {
    let mut driven = contended();
    for step in 0..5000 {
        let now = at(1).saturating_add(Duration::from_micros(100) * step);
        match driven.sent.last().unwrap().operation {
            Operation::Probe { .. } => driven.reply(now, &[Reply::Free; 5]),
            _ => driven.reply(now, &[Denied; 5]),
        }
        driven.run(|lease| lease.handle_timeout(now));
    }
    let attempts = driven.lease.attempts();
    assert!(attempts < 100, "{attempts} in half a second");
}

/// Looks by the clock for a second, at a key that is taken until what `until` says of the time. Returns how
/// long it waited before the last look.
fn last_delay(until: impl Fn(u64) -> u64) -> Duration {
    let mut driven = contended();
    let mut now = at(2);
    let mut delay = Duration::ZERO;
    while now < at(400) {
        let millis = now.as_nanos() / 1_000_000;
        driven.reply(now, &[taken(until(millis)); 5]);
        let due = driven.lease.poll_timeout().unwrap();
        delay = due.saturating_duration_since(now);
        now = due;
        driven.run(|lease| lease.handle_timeout(due));
    }
    delay
}

#[test]
fn looks_faster_at_a_key_that_changes_hands_unseen() {
    let changes_hands = |now| now / 20 * 20 + 900;
    let delay = last_delay(changes_hands);
    assert!(delay >= MS(20) / 8 && delay <= MS(5), "{delay:?}");
    let stays = last_delay(|_| 900);
    assert!(stays >= MS(20), "it stays with its holder: {stays:?}");
}

#[test]
fn a_key_that_a_look_by_the_clock_finds_free_is_tried_at_once() {
    let mut driven = contended();
    driven.reply(at(2), &[taken(900); 5]);
    let due = driven.lease.poll_timeout().unwrap();
    driven.run(|lease| lease.handle_timeout(due));
    driven.reply(due, &[Reply::Free; 3]);
    assert_eq!(driven.lease.attempts(), 2);
}

#[test]
fn lets_others_first_and_tries_after_them() {
    let mut turns = Turns::default();
    turns.start(at(0), true);
    let pause = turns.end(at(100), turn(MS(20)), PollerShare::NONE).unwrap();
    let mut driven = Driven::new(LeaseConfig {
        retry: config().retry.with_probes(),
        ..config()
    });
    driven.run(|lease| {
        lease.back_off(pause);
        lease.acquire(at(100), at(1100));
    });
    assert_eq!(driven.lease.poll_timeout(), Some(at(102)));
    assert!(driven.sent.is_empty());
    driven.run(|lease| lease.handle_timeout(at(102)));
    let mut probes = 0;
    while driven.lease.attempts() == 0 {
        driven.reply(at(103), &[Reply::Free; 3]);
        probes += 1;
    }
    assert_eq!(probes, 4, "more than anybody who has waited");
    assert!(!driven.lease.was_contended());
    driven.reply(at(104), &[Granted; 3]);
    assert!(driven.is_held(at(104)));
}

#[test]
fn a_pause_that_would_cost_the_lock_is_left_out() {
    let mut turns = Turns::default();
    turns.start(at(0), true);
    let pause = turns.end(at(100), turn(MS(20)), PollerShare::NONE).unwrap();
    let retry = config().retry.with_probes();
    let mut driven = Driven::new(LeaseConfig { retry, ..config() });
    driven.run(|lease| {
        lease.back_off(pause);
        lease.acquire(at(100), at(103));
    });
    assert_eq!(driven.lease.attempts(), 1);
}

#[test]
fn another_that_comes_during_a_pause_is_noticed() {
    let mut turns = Turns::default();
    turns.start(at(0), true);
    let mut now = at(0);
    let pause = loop {
        now = now.saturating_add(MS(20));
        let pause = turns.end(now, turn(MS(20)), PollerShare::MAX).unwrap();
        if pause.is_for_pollers() {
            break pause;
        }
    };
    let mut driven = Driven::new(LeaseConfig {
        retry: config().retry.with_probes(),
        ..config()
    });
    driven.run(|lease| {
        lease.back_off(pause);
        lease.acquire(now, now.saturating_add(MS(1000)));
    });
    assert_eq!(driven.sent.len(), 1, "it looks, to be told");
    driven.reply(now, &[Reply::Free; 5]);
    assert!(!driven.lease.was_contended());
    freed(&mut driven, now, 2);
    assert!(driven.lease.was_contended());
    assert_eq!(driven.lease.attempts(), 0);
}
