//! Waiting in a line that the driver keeps.

use super::{
    watching::{probing, taken},
    *,
};

/// A lease in the line: its first attempt has found the key taken.
fn in_line() -> Driven {
    let mut driven = probing(config().retry);
    driven.lease.stand_in_line(true);
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    assert!(driven.lease.is_in_line());
    driven
}

/// Nobody stood in the line, so it has no place.
#[test]
fn a_lease_that_tries_first_is_in_the_line_once_the_key_is_taken() {
    let begun = || {
        let mut driven = probing(config().retry);
        driven.lease.stand_in_line(false);
        driven.acquire(at(0));
        driven
    };
    let mut driven = begun();
    driven.run(|lease| lease.try_first(at(3), Duration::ZERO));
    driven.reply(at(4), &[Denied; 3]);
    assert!(driven.lease.is_in_line());

    let mut driven = begun();
    driven.run(|lease| lease.try_first(at(3), MS(8)));
    assert_eq!(driven.lease.attempts(), 0, "it leaves the key free");
    driven.reply(at(4), &[Reply::Free; 3]);
    driven.wait();
    assert_eq!(driven.lease.attempts(), 1);

    let mut driven = begun();
    driven.run(|lease| lease.try_first(at(3), MS(8)));
    driven.reply(at(4), &[taken(900); 3]);
    assert!(driven.lease.is_in_line() && driven.lease.attempts() == 0);
}

#[test]
fn a_lease_that_steps_back_sends_nothing_until_its_turn_comes_again() {
    let mut driven = in_line();
    driven.run(|lease| lease.proceed(at(3), false, Duration::ZERO));
    driven.run(Lease::step_back);
    let sent = driven.sent.len();
    driven.reply(at(4), &[Reply::Free; 5]);
    driven.freed(at(5), 0..5);
    assert!(driven.lease.is_in_line());
    assert_eq!(driven.sent.len(), sent);
    driven.run(|lease| lease.proceed(at(6), true, Duration::ZERO));
    driven.run(Lease::step_back);
    driven.reply(at(7), &[Granted; 3]);
    assert!(driven.is_held(at(7)), "an attempt goes on");
}

#[test]
fn a_look_says_once_whether_a_majority_is_free() {
    let free = Reply::Free;
    for (replies, is_free) in [
        (&[free; 3][..], true),
        (&[taken(900); 3], false),
        (&[free, free, Unknown, Unknown, Unknown], false),
    ] {
        let mut driven = in_line();
        driven.run(|lease| lease.look(at(5)));
        let sent = driven.sent.len();
        driven.run(|lease| lease.look(at(5)));
        assert_eq!(driven.sent.len(), sent, "one at a time");
        driven.reply(at(6), replies);
        assert_eq!(driven.told, [Event::Looked { is_free }]);
        assert!(driven.lease.is_in_line());
    }
}

#[test]
fn a_wait_in_the_line_ends_at_the_deadline() {
    let mut driven = in_line();
    driven.wait();
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 1));
    // Without any attempt before, there is one.
    let mut driven = probing(config().retry);
    driven.lease.stand_in_line(false);
    driven.run(|lease| lease.acquire(at(0), at(9)));
    driven.timeout(at(9));
    assert_eq!(driven.lease.attempts(), 1);
}

#[test]
fn the_key_is_left_free_for_a_pause() {
    let mut driven = in_line();
    driven.run(|lease| lease.proceed(at(3), true, MS(8)));
    driven.reply(at(4), &[Reply::Free; 3]);
    assert_eq!(driven.lease.attempts(), 1);
    assert_eq!(driven.due(), at(12));
    driven.timeout(at(12));
    assert_eq!(driven.lease.attempts(), 2);
}
