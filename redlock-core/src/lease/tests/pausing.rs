//! Pauses in which a process lets others go first.

use super::{
    watching::{freed, probing, taken},
    *,
};
use crate::{Others, Pause};

/// Returns a pause that begins at 100 ms.
fn pause() -> Pause {
    Pause {
        until: at(102),
        others: Others::Notified,
        competitors: 3,
    }
}

/// Starts a lease after the pause.
fn paused(deadline: Timestamp) -> Driven {
    let mut driven = probing(config().retry);
    driven.run(|lease| {
        lease.back_off(pause());
        lease.acquire(at(100), deadline);
    });
    driven
}

#[test]
fn a_lease_with_a_pause_lets_others_go_first() {
    let mut driven = paused(at(1100));
    assert_eq!(driven.lease.poll_timeout(), Some(at(102)));
    assert!(driven.sent.is_empty());
    driven.run(|lease| lease.handle_timeout(at(102)));
    let mut probes = 0;
    while driven.lease.attempts() == 0 {
        driven.reply(at(103), &[Reply::Free; 3]);
        probes += 1;
    }
    assert_eq!(probes, 4, "more rechecks than any waiter needs");
    assert!(!driven.lease.was_contended());
    driven.reply(at(104), &[Granted; 3]);
    assert!(driven.is_held(at(104)));
}

#[test]
fn a_lease_that_gathers_after_a_pause_keeps_its_deadline() {
    let mut driven = probing(config().retry);
    let deadline = at(250);
    driven.run(|lease| {
        lease.set_several_keys();
        lease.back_off(pause());
        lease.acquire(at(100), deadline);
    });
    while let Some(due) = driven.lease.poll_timeout().filter(|due| *due <= deadline) {
        driven.run(|lease| lease.handle_timeout(due));
        if let Some(Operation::Probe { .. }) = driven.operations().last() {
            driven.reply(due, &[taken(900); 5]);
        }
    }
    assert_eq!(driven.lease.attempts(), 1, "it has gathered");
    assert!(matches!(driven.told[..], [.., Event::Exhausted { .. }]));
}

#[test]
fn a_pause_beyond_the_deadline_is_left_out() {
    let driven = paused(at(103));
    assert_eq!(driven.lease.attempts(), 1);
}

#[test]
fn a_lease_whose_time_ends_after_a_pause_makes_its_one_attempt() {
    let waits = || {
        let mut driven = paused(at(106));
        driven.run(|lease| lease.handle_timeout(at(102)));
        assert_eq!((driven.lease.attempts(), driven.sent.len()), (0, 1));
        driven
    };
    // Nothing is known of other clients at the deadline.
    let mut silent = waits();
    silent.run(|lease| lease.handle_timeout(at(106)));
    assert_eq!(silent.lease.attempts(), 1);
    silent.reply(at(107), &[Granted; 3]);
    assert!(silent.is_held(at(107)));
    // Another client has the key.
    let mut taken_by_another = waits();
    taken_by_another.reply(at(103), &[taken(900); 5]);
    taken_by_another.run(|lease| lease.handle_timeout(at(2000)));
    assert_eq!(taken_by_another.lease.attempts(), 0, "by a late timer, too");
    assert!(taken_by_another.lease.is_closed());
}

#[test]
fn another_client_is_noticed_during_a_pause() {
    let now = at(100);
    let pause = Pause {
        until: at(108),
        others: Others::Polling,
        competitors: 3,
    };
    let mut driven = probing(config().retry);
    driven.run(|lease| {
        lease.back_off(pause);
        lease.acquire(now, now.saturating_add(MS(1000)));
    });
    assert_eq!(driven.sent.len(), 1, "a probe, for its notifications");
    driven.reply(now, &[Reply::Free; 5]);
    assert!(!driven.lease.was_contended());
    freed(&mut driven, now, 2);
    assert!(driven.lease.was_contended());
    assert_eq!(driven.lease.attempts(), 0);
}
