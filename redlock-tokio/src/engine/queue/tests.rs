//! The queue of one key: its limits and streaks.

mod every_order;
mod several;

use std::time::Duration;

use redlock_core::Timestamp;

use super::*;
use crate::{key::Prefix, options::WaiterLimit};

pub(super) const POLICY: QueuePolicy = QueuePolicy {
    hands_over: true,
    streak: Duration::from_millis(10),
    attempt: Duration::from_millis(1),
    others_wait: false,
    poller_share: 0,
    max_waiters_per_key: 2,
    wait: Duration::from_secs(1),
};

/// As [`POLICY`], without a limit of waiters.
pub(super) const ROOMY: QueuePolicy = QueuePolicy {
    max_waiters_per_key: usize::MAX,
    ..POLICY
};

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
}

fn key() -> Key {
    Key::new("k").unwrap()
}

/// Returns a set of keys of one letter each.
fn keys(names: &str) -> KeySet {
    KeySet::all(&Prefix::default(), names.split_inclusive(|_: char| true)).unwrap()
}

/// Creates a queue for at most this many waiters.
fn queue_of(max_waiting: usize) -> Queue<usize> {
    Queue::new(max_waiting, &Random::system())
}

fn queue() -> Queue<usize> {
    queue_of(usize::MAX)
}

fn arrival(who: usize) -> Arrival {
    Arrival::new(who as u64)
}

/// Returns the place of a plain lock.
fn place(keys: &KeySet, arrival: Arrival) -> QueuePlace<'_> {
    QueuePlace {
        keys,
        role: Role::Lock,
        arrival,
    }
}

type Joined = Result<JoinOutcome, Refusal>;

fn size(queue: &Queue<usize>) -> (usize, usize) {
    let QueueStatus { keys, waiting } = queue.status();
    (keys, waiting)
}

fn join(queue: &mut Queue<usize>, who: usize, policy: &QueuePolicy) -> Joined {
    join_at(queue, &key(), who, at(0), policy)
}

fn join_at(
    queue: &mut Queue<usize>,
    key: &Key,
    who: usize,
    now: Timestamp,
    policy: &QueuePolicy,
) -> Joined {
    queue.join(place(&key.clone().into(), arrival(who)), now, policy, &who)
}

/// Leaves the queue of a key. Returns what follows.
fn leave_at(
    queue: &mut Queue<usize>,
    key: &Key,
    who: usize,
    now: Timestamp,
    held: Option<Timestamp>,
    policy: &QueuePolicy,
) -> Option<FollowUp<usize>> {
    let mut next = queue.leave(place(&key.clone().into(), arrival(who)), now, held, policy);
    assert!(next.len() < 2, "{next:?}");
    next.pop()
}

const TURN: Joined = Ok(JoinOutcome::Turn { backs_off: false });
const WAITING: Joined = Ok(JoinOutcome::Waiting { look_at: None });

/// Returns what gives a waiter the turn.
fn turn(waiter: usize) -> FollowUp<usize> {
    let backs_off = false;
    FollowUp::StartTurn { waiter, backs_off }
}

/// A queue in which this many wait, and no more may.
fn full(waiting: usize, limited_by: WaiterLimit) -> Joined {
    let limit = waiting;
    Err(Refusal::Full {
        waiting,
        limit,
        limited_by,
    })
}

#[test]
fn refusals_name_their_limit() {
    let mut queue = queue();
    let busy = QueuePolicy {
        wait: Duration::ZERO,
        ..POLICY
    };
    assert_eq!(join(&mut queue, 0, &busy), TURN);
    assert_eq!(join(&mut queue, 1, &busy), Err(Refusal::Busy));
    for who in 1..3 {
        assert_eq!(join(&mut queue, who, &POLICY), WAITING);
    }
    assert_eq!(join(&mut queue, 3, &POLICY), full(2, WaiterLimit::PerKey));
    let of_two_keys = queue.join(place(&keys("jk"), arrival(3)), at(0), &POLICY, &3);
    assert_eq!(of_two_keys, full(2, WaiterLimit::PerKey));
    let mut small = queue_of(1);
    let other = Key::new("other").unwrap();
    for who in 0..2 {
        assert!(join(&mut small, who, &POLICY).is_ok());
    }
    assert!(join_at(&mut small, &other, 2, at(0), &POLICY).is_ok());
    let joined = join_at(&mut small, &other, 3, at(0), &POLICY);
    assert_eq!(joined, full(1, WaiterLimit::Total));
}

#[test]
fn a_streak_is_bounded_in_time_and_number() {
    let successors = |policy: &QueuePolicy, now| {
        let mut queue = queue();
        for who in 0..3 {
            join(&mut queue, who, &POLICY).unwrap();
        }
        let key = key().into();
        let place = place(&key, arrival(0));
        let mut successor = |now, since| {
            queue
                .take_successor(place, now, since, policy, |_| true)
                .next()
        };
        (successor(at(1), at(0)), successor(now, at(1)))
    };
    assert_eq!(successors(&POLICY, at(9)), (Some(1), Some(2)));
    assert_eq!(successors(&POLICY, at(10)), (Some(1), None));
    let mut queue = queue();
    for who in 0..2 {
        join(&mut queue, who, &POLICY).unwrap();
    }
    let key = key().into();
    let misfit = queue.take_successor(place(&key, arrival(0)), at(1), at(0), &POLICY, |_| false);
    let misfit = misfit.next();
    assert_eq!((misfit, size(&queue)), (None, (1, 1)), "it still waits");
}

#[test]
fn a_process_that_has_seen_others_has_a_short_turn_and_then_stands_behind_them() {
    let mut queue = queue();
    let beside_others = QueuePolicy {
        others_wait: true,
        ..POLICY
    };
    let mut go = |now: u64| {
        let (who, held) = (now as usize, Some(at(now)));
        let joined = join_at(&mut queue, &key(), who, at(now), &POLICY);
        leave_at(&mut queue, &key(), who, at(now + 1), held, &beside_others);
        joined
    };
    let behind = Ok(JoinOutcome::Turn { backs_off: true });
    for now in 0..3 {
        assert_eq!(go(now), TURN, "{now}");
    }
    assert_eq!(go(3), behind);
    assert_eq!(go(4), TURN, "another turn");
    assert_eq!(go(8), behind, "others are on their way");
    assert_eq!(go(20), TURN, "they had the time to come");
}
