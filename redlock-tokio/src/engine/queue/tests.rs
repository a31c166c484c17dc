//! The queue of one key: its limits, streaks, and every order of events for three waiters.

mod every_order;
mod several;

use std::time::Duration;

use redlock_core::Timestamp;

use super::*;
use crate::{key::Prefix, options::WaiterLimit};

const POLICY: QueuePolicy = QueuePolicy {
    hands_over: true,
    streak: Duration::from_millis(10),
    poller_share: 0,
    max_waiters_per_key: 2,
    wait: Duration::from_secs(1),
};

/// As [`POLICY`], without a limit of waiters.
const ROOMY: QueuePolicy = QueuePolicy {
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

fn ticket(who: usize) -> Ticket {
    Ticket::new(who as u64)
}

type Joined = Result<JoinOutcome<usize>, Refused<usize>>;

fn refused(refusal: Refusal) -> Joined {
    Err(Refused {
        refusal,
        follow_up: None,
    })
}

fn size(queue: &Queue<usize>) -> (usize, usize) {
    let QueueSize { keys, waiting } = queue.size();
    (keys, waiting)
}

fn join(queue: &Queue<usize>, who: usize, policy: &QueuePolicy) -> Joined {
    join_at(queue, &key(), who, at(0), policy)
}

fn join_at(
    queue: &Queue<usize>,
    key: &Key,
    who: usize,
    now: Timestamp,
    policy: &QueuePolicy,
) -> Joined {
    queue.join(&key.clone().into(), ticket(who), now, policy, |_| who)
}

/// Leaves the queue of a key. Returns what follows.
fn leave_at(
    queue: &Queue<usize>,
    key: &Key,
    who: usize,
    now: Timestamp,
    held: Option<Timestamp>,
    policy: &QueuePolicy,
) -> Option<FollowUp<usize>> {
    let mut next = queue.leave(&key.clone().into(), ticket(who), now, held, policy);
    assert!(next.len() < 2, "{next:?}");
    next.pop()
}

const TURN: Joined = Ok(JoinOutcome::Turn { backs_off: false });
const WAITING: Joined = Ok(JoinOutcome::Waiting { follow_up: None });

/// Returns what gives a waiter the turn.
fn turn(waiter: usize) -> FollowUp<usize> {
    let backs_off = false;
    FollowUp::StartTurn { waiter, backs_off }
}

/// Returns what schedules the end of a waiter's reservation.
fn expire(waiter: usize, at: Timestamp) -> FollowUp<usize> {
    FollowUp::ScheduleExpiry { waiter, at }
}

/// What a lease is told that joins a key that is reserved for a waiter until then.
fn waiting_until_expiry(waiter: usize, at: Timestamp) -> Joined {
    let follow_up = Some(expire(waiter, at));
    Ok(JoinOutcome::Waiting { follow_up })
}

#[test]
fn the_memory_of_a_peak_is_given_back() {
    let queue = queue();
    let key = |number: usize| KeySet::from(Key::new(number.to_string()).unwrap());
    let busy = 0..50_000;
    for who in busy.clone() {
        let joined = queue.join(&key(who), ticket(who), at(0), &POLICY, |_| who);
        assert!(joined.is_ok());
    }
    let capacity = || queue.0.lock().keys.by_key.capacity();
    assert!(capacity() >= busy.len());
    for who in busy {
        let next = queue.leave(&key(who), ticket(who), at(0), Some(at(0)), &POLICY);
        assert!(next.is_empty());
    }
    assert!(capacity() <= 1024, "{}", capacity());
}

#[test]
fn first_come_first_served() {
    let queue = queue();
    assert_eq!(join(&queue, 0, &POLICY), TURN);
    assert_eq!(join(&queue, 1, &POLICY), WAITING);
    assert_eq!(join(&queue, 2, &POLICY), WAITING);
    assert_eq!((size(&queue), queue.turn(b"k")), ((1, 2), Some(0)));
    let leave = |who| leave_at(&queue, &key(), who, at(1), None, &POLICY);
    assert_eq!(leave(0), Some(turn(1)));
    assert_eq!(leave(1), Some(turn(2)));
    assert_eq!(leave(2), None);
    assert_eq!((size(&queue), queue.turn(b"k")), ((0, 0), None));
}

#[test]
fn refusals_name_their_limit() {
    let queue = queue();
    let busy = QueuePolicy {
        wait: Duration::ZERO,
        ..POLICY
    };
    assert_eq!(join(&queue, 0, &busy), TURN);
    assert_eq!(join(&queue, 1, &busy), refused(Refusal::Busy));
    for who in 1..3 {
        assert_eq!(join(&queue, who, &POLICY), WAITING);
    }
    let full = |waiting, limited_by| {
        refused(Refusal::Full {
            waiting,
            limit: waiting,
            limited_by,
        })
    };
    assert_eq!(join(&queue, 3, &POLICY), full(2, WaiterLimit::PerKey));
    let small = queue_of(1);
    let other = Key::new("other").unwrap();
    for who in 0..2 {
        assert!(join(&small, who, &POLICY).is_ok());
    }
    assert!(join_at(&small, &other, 2, at(0), &POLICY).is_ok());
    assert_eq!(
        join_at(&small, &other, 3, at(0), &POLICY),
        full(1, WaiterLimit::Total)
    );
}

#[test]
fn a_streak_is_bounded_in_time_and_number() {
    let successors = |policy: &QueuePolicy, now| {
        let queue = queue();
        for who in 0..3 {
            join(&queue, who, &POLICY).unwrap();
        }
        let first = queue.successor(&key(), at(1), at(0), policy, |_| true);
        let second = queue.successor(&key(), now, at(1), policy, |_| true);
        (first, second)
    };
    assert_eq!(successors(&POLICY, at(9)), (Some(1), Some(2)));
    assert_eq!(successors(&POLICY, at(10)), (Some(1), None));
    let queue = queue();
    for who in 0..2 {
        join(&queue, who, &POLICY).unwrap();
    }
    let misfit = queue.successor(&key(), at(1), at(0), &POLICY, |_| false);
    assert_eq!((misfit, size(&queue)), (None, (1, 1)), "it still waits");
}

#[test]
fn a_lease_that_follows_at_once_continues_the_streak() {
    let queue = queue();
    let go = |now: u64| {
        let joined = join_at(&queue, &key(), now as usize, at(now), &POLICY);
        leave_at(
            &queue,
            &key(),
            now as usize,
            at(now + 1),
            Some(at(now)),
            &POLICY,
        );
        joined
    };
    for now in 0..10 {
        assert_eq!(go(now), TURN, "{now}");
    }
    assert_eq!(go(10), Ok(JoinOutcome::Turn { backs_off: true }));
    assert_eq!(go(11), TURN, "a new streak");
    for now in (20..60).step_by(4) {
        assert_eq!(go(now), TURN, "{now}: after a pause");
    }
}

/// How far one of the leases that want the key has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Away,
    Waiting,
    Turn,
    Held,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Join(usize),
    /// Gives up, or fails to acquire, or loses the lock.
    Leave(usize),
    Acquire(usize),
    Release(usize),
    /// Releases, while the next gives up at that very moment.
    ReleaseToNobody(usize),
}

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A waiter that gives up stays in the queue.
    Stays,
    /// A successor keeps its place in the queue.
    SuccessorStays,
    /// The turn does not pass on.
    KeepsTurn,
}

struct World {
    queue: Queue<usize>,
    stages: [Stage; 3],
    /// The lease that acquired the lock. After a handover the queue still knows the turn by this lease.
    lease: Option<usize>,
    /// In the order of their tickets.
    joined: Vec<usize>,
    served: Vec<usize>,
    mutant: Mutant,
}

impl World {
    fn new(mutant: Mutant) -> Self {
        Self {
            queue: queue(),
            stages: [Stage::Away; 3],
            lease: None,
            joined: Vec::new(),
            served: Vec::new(),
            mutant,
        }
    }

    fn steps(&self) -> Vec<Step> {
        let of = |who: usize| match self.stages[who] {
            Stage::Away => vec![Step::Join(who)],
            Stage::Waiting => vec![Step::Leave(who)],
            Stage::Turn => vec![Step::Acquire(who), Step::Leave(who)],
            Stage::Held => vec![
                Step::Leave(who),
                Step::Release(who),
                Step::ReleaseToNobody(who),
            ],
            Stage::Gone => vec![],
        };
        (0..3).flat_map(of).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Join(who) => {
                self.joined.push(who);
                self.stages[who] = match self.join(who) {
                    Ok(JoinOutcome::Turn { .. }) => Stage::Turn,
                    Ok(JoinOutcome::Waiting { .. }) => Stage::Waiting,
                    Err(refusal) => panic!("{refusal:?}"),
                };
            }
            Step::Leave(who) => {
                let was = std::mem::replace(&mut self.stages[who], Stage::Gone);
                if was == Stage::Waiting && self.mutant == Mutant::Stays {
                    return;
                }
                self.leave(who, was == Stage::Held);
            }
            Step::Acquire(who) => {
                self.stages[who] = Stage::Held;
                self.lease = Some(who);
                self.served.push(who);
            }
            Step::Release(who) => {
                self.stages[who] = Stage::Gone;
                let successor = self
                    .queue
                    .successor(&key(), at(0), at(0), &POLICY, |_| true);
                match successor {
                    Some(successor) => {
                        if self.mutant == Mutant::SuccessorStays {
                            self.join(successor).unwrap();
                        }
                        self.stages[successor] = Stage::Held;
                        self.served.push(successor);
                    }
                    None => self.leave(who, true),
                }
            }
            Step::ReleaseToNobody(who) => {
                self.stages[who] = Stage::Gone;
                while let Some(successor) =
                    self.queue
                        .successor(&key(), at(0), at(0), &POLICY, |_| true)
                {
                    // It has given up, and is in no queue any more.
                    self.stages[successor] = Stage::Gone;
                    assert_eq!(self.leave_queue(successor, None), None);
                }
                self.leave(who, true);
            }
        }
    }

    fn leave(&mut self, who: usize, held: bool) {
        // The queue knows a lock that was handed over by the lease that acquired it.
        let name = if held {
            self.lease.take().unwrap_or(who)
        } else {
            who
        };
        if self.mutant == Mutant::KeepsTurn {
            return;
        }
        let held = held.then(|| at(0));
        if let Some(next) = self.leave_queue(name, held) {
            let FollowUp::StartTurn { waiter, .. } = next else {
                panic!("no lease wants several keys: {next:?}");
            };
            self.stages[waiter] = Stage::Turn;
        }
    }

    fn join(&self, who: usize) -> Joined {
        let keys = key().into();
        self.queue
            .join(&keys, self.ticket(who), at(0), &POLICY, |_| who)
    }

    fn leave_queue(&self, who: usize, held: Option<Timestamp>) -> Option<FollowUp<usize>> {
        let keys = key().into();
        let next = self
            .queue
            .leave(&keys, self.ticket(who), at(0), held, &POLICY);
        next.into_iter().next()
    }

    fn ticket(&self, who: usize) -> Ticket {
        let place = self.joined.iter().position(|it| *it == who);
        ticket(place.expect("it has joined"))
    }

    /// Returns what is wrong, if anything.
    fn fault(&self) -> Option<&'static str> {
        let count = |stage| self.stages.iter().filter(|it| **it == stage).count();
        let (turns, held, waiting) = (
            count(Stage::Turn),
            count(Stage::Held),
            count(Stage::Waiting),
        );
        if turns + held > 1 {
            return Some("two have the turn");
        }
        if waiting > 0 && turns + held == 0 {
            return Some("some wait and none has the turn");
        }
        if size(&self.queue) != (usize::from(turns + held > 0), waiting) {
            return Some("the queue does not hold the leases that are there");
        }
        let order = self.joined.iter().filter(|it| self.served.contains(it));
        if !order.eq(&self.served) {
            return Some("not served in order of arrival");
        }
        None
    }
}

/// Returns how many orders of events there are, or what is wrong in one of them.
fn explore(mutant: Mutant) -> Result<usize, (Vec<Step>, &'static str)> {
    let mut orders = 0;
    let mut paths: Vec<Vec<Step>> = vec![vec![]];
    while let Some(path) = paths.pop() {
        let mut world = World::new(mutant);
        for step in &path {
            world.take(*step);
        }
        if let Some(fault) = world.fault() {
            return Err((path, fault));
        }
        let steps = world.steps();
        orders += usize::from(steps.is_empty());
        paths.extend(steps.into_iter().map(|step| {
            let mut path = path.clone();
            path.push(step);
            path
        }));
    }
    Ok(orders)
}

#[test]
fn every_order_of_events_leaves_a_queue_of_the_leases_that_are_there() {
    let orders = explore(Mutant::None).unwrap_or_else(|(path, fault)| panic!("{fault}: {path:?}"));
    assert!(orders > 1000, "{orders}");
    for mutant in [Mutant::Stays, Mutant::SuccessorStays, Mutant::KeepsTurn] {
        assert!(explore(mutant).is_err(), "{mutant:?} is found out");
    }
}
