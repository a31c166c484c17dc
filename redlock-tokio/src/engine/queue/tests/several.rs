//! The queues of several keys: turns for all keys at once, kept keys, and what is refused.

use super::*;

/// Joins the queues of the keys `a` and `b`.
fn join_both(queue: &mut Queue<usize>, who: usize) -> Joined {
    queue.join(place(&keys("ab"), arrival(who)), at(0), &ROOMY, &who)
}

/// Neither at a free key nor by handover, until the slice is over.
#[test]
fn in_one_of_two_slices_no_later_waiter_gets_the_key_of_one_that_waits_for_several() {
    let mut queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    assert_eq!(join_at(&mut queue, &b, 0, at(0), &ROOMY), TURN);
    assert_eq!(join_both(&mut queue, 1), WAITING);
    assert_eq!(join_at(&mut queue, &b, 2, at(0), &ROOMY), WAITING);
    assert_eq!(join_at(&mut queue, &a, 3, at(99), &ROOMY), TURN, "not yet");
    let held = KeySet::from(b.clone());
    let place = place(&held, arrival(0));
    let mut successor = |now| {
        queue
            .take_successor(place, now, at(99), &ROOMY, |_| true)
            .next()
    };
    assert_eq!(successor(at(100)), None);
    assert_eq!(leave_at(&mut queue, &a, 3, at(100), None, &ROOMY), None);
    let no_wait = QueuePolicy {
        wait: Duration::ZERO,
        ..ROOMY
    };
    let mut joined = |who, policy| join_at(&mut queue, &a, who, at(199), policy);
    assert_eq!(joined(4, &no_wait), Err(Refusal::Busy));
    let look_at = Some(at(200));
    let waiting = Ok(JoinOutcome::Waiting { look_at });
    assert_eq!([joined(5, &ROOMY), joined(6, &ROOMY)], [waiting, WAITING]);
    let mut look_again = |now| queue.advance(Role::Lock, &a.clone().into(), now, Pace::ALL);
    let look = |waiter, millis| FollowUp::LookAgain {
        waiter,
        at: at(millis),
    };
    assert_eq!(look_again(at(200)), [look(5, 300)], "the next slice, too");
    assert_eq!(look_again(at(300)), [turn(5)]);
    let next = leave_at(&mut queue, &a, 5, at(500), None, &ROOMY);
    assert_eq!(next, Some(look(6, 600)));
    let next = leave_at(&mut queue, &b, 0, at(599), None, &ROOMY);
    assert_eq!(next, Some(turn(1)));
}
