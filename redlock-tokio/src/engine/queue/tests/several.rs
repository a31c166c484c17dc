//! The queues of several keys: turns for all keys at once, reservations, and what a turn costs.

use std::time::Instant;

use super::*;

/// Joins the queues of the keys `a` and `b`.
fn join_both(queue: &Queue<usize>, who: usize) -> Joined {
    queue.join(&keys("ab"), ticket(who), at(0), &ROOMY, |_| who)
}

/// A waiter for several keys has its turn when all are free. Until then it is overtaken.
#[test]
fn several_keys_are_given_together() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    let both = keys("ab");
    let join_both = |who: usize| queue.join(&both, ticket(who), at(0), &POLICY, |_| who);
    let leave = |key, who| leave_at(&queue, key, who, at(0), None, &POLICY);
    assert_eq!(join_at(&queue, &b, 0, at(0), &POLICY), TURN);
    assert_eq!(join_both(1), WAITING);
    assert_eq!(size(&queue), (2, 1));
    assert_eq!(join_at(&queue, &a, 2, at(0), &POLICY), TURN, "a is free");
    assert_eq!(join_at(&queue, &b, 3, at(0), &POLICY), WAITING);
    assert_eq!(leave(&b, 0), Some(turn(3)), "a is taken");
    assert_eq!(leave(&a, 2), None);
    assert_eq!(leave(&b, 3), Some(turn(1)));
    assert_eq!([queue.turn(b"a"), queue.turn(b"b")], [Some(1); 2]);
    assert_eq!(join_at(&queue, &a, 4, at(0), &POLICY), WAITING);
    assert_eq!(join_both(5), WAITING);
    assert_eq!(join_at(&queue, &b, 6, at(0), &POLICY), WAITING);
    let next = queue.leave(&both, ticket(1), at(0), None, &POLICY);
    assert_eq!(next, [turn(4), turn(6)]);
    let next = queue.leave(&both, ticket(5), at(0), None, &POLICY);
    assert_eq!(next, [], "it gives up");
    assert_eq!(leave(&a, 4), None);
    assert_eq!(leave(&b, 6), None);
    assert_eq!(size(&queue), (0, 0));
}

#[test]
fn the_leases_with_a_turn_are_listed_once_each_in_order_of_arrival() {
    let queue = queue();
    let names: Vec<_> = (0..50).map(|number| format!("k{number}")).collect();
    for (who, name) in names.iter().enumerate().rev() {
        let key = Key::new(name).unwrap();
        assert_eq!(join_at(&queue, &key, who, at(0), &POLICY), TURN);
    }
    let joined = queue.join(&keys("abcdefgh"), ticket(50), at(0), &POLICY, |_| 50);
    assert_eq!(joined, TURN);
    assert!(queue.turns().eq(0..=50));
}

#[test]
fn a_key_is_handed_over_past_an_earlier_waiter_only_if_another_of_its_keys_is_taken() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
    assert_eq!(join_both(&queue, 1), WAITING);
    assert_eq!(join_at(&queue, &b, 2, at(0), &ROOMY), WAITING);
    let successor = || queue.successor(&b, at(1), at(0), &ROOMY, |_| true).next();
    assert_eq!(successor(), None, "a is free");
    assert_eq!(join_at(&queue, &a, 3, at(1), &ROOMY), TURN);
    assert_eq!(successor(), Some(2), "a is taken");
}

/// A lease gets its ticket a moment before it joins, so a later lease may join first.
#[test]
fn an_earlier_ticket_comes_first_although_it_joins_later() {
    let queue = queue();
    let (b, both) = (Key::new("b").unwrap(), keys("ab"));
    assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
    for who in [2, 1, 3] {
        assert_eq!(join_both(&queue, who), WAITING);
    }
    assert_eq!(leave_at(&queue, &b, 0, at(1), None, &ROOMY), Some(turn(1)));
    for who in 1..3 {
        let next = queue.leave(&both, ticket(who), at(1), None, &ROOMY);
        assert_eq!(next, [turn(who + 1)]);
    }
}

/// Once a waiter for several keys has waited long enough, none overtakes it any more, neither at a free key nor by
/// handover. And a reservation expires.
#[test]
fn keys_are_reserved_for_one_that_has_waited_long() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    let late = at(100);
    assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
    assert_eq!(join_both(&queue, 1), WAITING);
    assert_eq!(join_at(&queue, &b, 2, at(0), &ROOMY), WAITING);
    let successor = |now, held| queue.successor(&b, now, held, &ROOMY, |_| true).next();
    assert_eq!(successor(late, at(99)), None);
    let no_wait = QueuePolicy {
        wait: Duration::ZERO,
        ..ROOMY
    };
    let busy = Err(Refused {
        refusal: Refusal::Busy,
        follow_up: Some(expire(1, at(150))),
    });
    assert_eq!(join_at(&queue, &a, 3, late, &no_wait), busy);
    assert_eq!(join_at(&queue, &a, 3, late, &ROOMY), WAITING, "the same");
    assert_eq!(join_at(&queue, &a, 4, late, &ROOMY), WAITING, "the same");
    assert_eq!(queue.expire(ticket(1), at(149)), [], "too early");
    assert_eq!(queue.expire(ticket(1), at(150)), [turn(3)]);
    assert_eq!(
        leave_at(&queue, &a, 3, at(160), None, &ROOMY),
        Some(turn(4))
    );
    assert_eq!(leave_at(&queue, &a, 4, at(170), None, &ROOMY), None);
    // The waiter must become due again. The next reservation lasts twice as long as the first.
    assert_eq!(join_at(&queue, &a, 5, at(249), &ROOMY), TURN, "not due");
    assert_eq!(leave_at(&queue, &a, 5, at(250), None, &ROOMY), None);
    let joined = join_at(&queue, &a, 6, at(250), &ROOMY);
    assert_eq!(joined, waiting_until_expiry(1, at(350)));
    assert_eq!(queue.expire(ticket(1), at(350)), [turn(6)]);
    assert_eq!(leave_at(&queue, &a, 6, at(351), None, &ROOMY), None);
    let joined = join_at(&queue, &a, 7, at(450), &ROOMY);
    assert_eq!(joined, waiting_until_expiry(1, at(650)));
    let next = leave_at(&queue, &b, 0, at(600), None, &ROOMY);
    assert_eq!(next, Some(turn(1)), "before all that came later");
    assert_eq!(queue.expire(ticket(1), at(650)), [], "it has its turn");
}

/// The keys are reserved again, but the reservation holds back only waiters that came after it expired.
#[test]
fn waiters_that_passed_when_a_reservation_ended_are_not_held_back_again() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
    assert_eq!(join_both(&queue, 1), WAITING);
    let joined = join_at(&queue, &a, 2, at(100), &ROOMY);
    assert_eq!(joined, waiting_until_expiry(1, at(150)));
    assert_eq!(join_at(&queue, &a, 3, at(100), &ROOMY), WAITING);
    assert_eq!(queue.expire(ticket(1), at(150)), [turn(2)]);
    assert_eq!(join_at(&queue, &a, 4, at(160), &ROOMY), WAITING);
    let leave = |who, now| leave_at(&queue, &a, who, now, None, &ROOMY);
    assert_eq!(leave(2, at(400)), Some(turn(3)));
    assert_eq!(leave(3, at(400)), Some(expire(1, at(500))));
}

/// After it expires, none of the keys is reserved before as much time has passed as the reservation lasted, however often
/// the waiter is overtaken. If it gives up, they are not reserved for the next waiter either.
#[test]
fn keys_are_open_after_a_reservation_for_as_long_as_it_lasted() {
    for gives_up in [false, true] {
        let queue = queue();
        let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
        assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
        for who in [1, 2] {
            assert_eq!(join_both(&queue, who), WAITING);
        }
        let joined = join_at(&queue, &a, 3, at(100), &ROOMY);
        assert_eq!(joined, waiting_until_expiry(1, at(150)));
        // It gives up a moment before its reservation would expire.
        let (now, next) = if gives_up {
            let next = queue.leave(&keys("ab"), ticket(1), at(149), None, &ROOMY);
            (149, next)
        } else {
            (150, queue.expire(ticket(1), at(150)))
        };
        assert_eq!(next, [turn(3)], "{gives_up}");
        assert_eq!(leave_at(&queue, &a, 3, at(now), None, &ROOMY), None);
        let open_until = now + (now - 100);
        for who in 10..30 {
            let joined = join_at(&queue, &a, who, at(open_until - 1), &ROOMY);
            assert_eq!(joined, TURN, "{gives_up}: {who}");
            let next = leave_at(&queue, &a, who, at(open_until - 1), None, &ROOMY);
            assert_eq!(next, None);
        }
        let reserver = if gives_up { 2 } else { 1 };
        let duration = if gives_up { 50 } else { 100 };
        let joined = join_at(&queue, &a, 30, at(open_until), &ROOMY);
        assert_eq!(
            joined,
            waiting_until_expiry(reserver, at(open_until + duration))
        );
    }
}

/// The cost of a turn does not depend on how many wait for several keys. Nor does their order of giving up matter.
#[test]
fn the_cost_of_a_turn_hardly_grows_with_the_number_of_waiters() {
    let [few, many] = [256, 65_536].map(|count| {
        // The least of several tries is what it costs without other work of the machine.
        let tries = [(); 3].map(|()| cost_with(count));
        let turn = tries.iter().map(|it| it.0).min().unwrap();
        let giving_up = tries.iter().map(|it| it.1).min().unwrap();
        println!("{count}: {turn:?}, {giving_up:?}");
        (turn, giving_up)
    });
    // There are 256 times as many. Larger tables are slower, because they do not fit into caches.
    assert!(many.0 <= 32 * few.0, "{few:?} {many:?}");
    assert!(many.1 <= 32 * few.1, "{few:?} {many:?}");
}

/// Returns how long a handover and a turn take while so many wait for two keys, and how long each of these takes to give
/// up.
fn cost_with(count: usize) -> (Duration, Duration) {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    for key in [&a, &b] {
        assert_eq!(join_at(&queue, key, 0, at(0), &ROOMY), TURN);
    }
    let others = 1..=count;
    for who in others.clone() {
        assert_eq!(join_both(&queue, who), WAITING);
    }
    for who in [count + 1, count + 2] {
        assert_eq!(join_at(&queue, &a, who, at(0), &ROOMY), WAITING);
    }
    let start = Instant::now();
    let successor = queue.successor(&a, at(0), at(0), &ROOMY, |_| true).next();
    assert_eq!(successor, Some(count + 1));
    let next = leave_at(&queue, &a, 0, at(0), None, &ROOMY);
    assert_eq!(next, Some(turn(count + 2)));
    let turn = start.elapsed();

    let start = Instant::now();
    for who in others.rev() {
        let next = queue.leave(&keys("ab"), ticket(who), at(0), None, &ROOMY);
        assert_eq!(next, []);
    }
    (turn, start.elapsed() / u32::try_from(count).unwrap())
}

#[test]
fn a_request_for_several_keys_is_refused_if_the_queue_of_any_is_full() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    assert_eq!(join_at(&queue, &a, 0, at(0), &POLICY), TURN);
    assert_eq!(join_at(&queue, &b, 1, at(0), &POLICY), TURN);
    for who in 2..4 {
        assert_eq!(join_at(&queue, &b, who, at(0), &POLICY), WAITING);
    }
    // It would wait for the key a first, and be the third waiter for the key b.
    let joined = queue.join(&keys("ab"), ticket(4), at(0), &POLICY, |_| 4);
    let full = Refusal::Full {
        waiting: 2,
        limit: 2,
        limited_by: WaiterLimit::PerKey,
    };
    assert_eq!(joined, refused(full));
}
