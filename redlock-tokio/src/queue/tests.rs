//! The lines in every order of events, for three who want one key.

use std::time::Duration;

use redlock_core::Timestamp;

use super::*;

const TERMS: Terms = Terms {
    hands_over: true,
    streak: Duration::from_millis(10),
    max_handovers: u32::MAX,
    max_waiters: 2,
    wait: Duration::from_secs(1),
    refuses_hopeless: false,
};

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
}

fn key() -> Key {
    Key::new("k").unwrap()
}

fn queue() -> Queue<usize> {
    Queue::new(usize::MAX)
}

fn join(queue: &Queue<usize>, who: usize, terms: &Terms) -> Result<Joined, Refusal> {
    join_at(queue, &key(), who, at(0), terms)
}

fn join_at(
    queue: &Queue<usize>,
    key: &Key,
    who: usize,
    now: Timestamp,
    terms: &Terms,
) -> Result<Joined, Refusal> {
    queue.join(&key.clone().into(), who as u64, now, &who, terms)
}

/// Leaves the line for a key; returns who has the turn then.
fn leave_at(
    queue: &Queue<usize>,
    key: &Key,
    who: usize,
    now: Timestamp,
    held: Option<Timestamp>,
    terms: &Terms,
) -> Option<Next<usize>> {
    let mut next = queue.leave(&key.clone().into(), who as u64, now, held, terms);
    assert!(next.len() < 2, "{next:?}");
    next.pop()
}

const TURN: Result<Joined, Refusal> = Ok(Joined::Turn { stands_back: false });

#[test]
fn first_come_first_served() {
    let queue = queue();
    assert_eq!(join(&queue, 0, &TERMS), TURN);
    assert_eq!(join(&queue, 1, &TERMS), Ok(Joined::Waiting));
    assert_eq!(join(&queue, 2, &TERMS), Ok(Joined::Waiting));
    assert_eq!((queue.len(), queue.turn(b"k")), ((1, 2), Some(0)));
    let next = leave_at(&queue, &key(), 0, at(1), None, &TERMS).unwrap();
    assert_eq!((next.who, next.stands_back), (1, false));
    assert_eq!(
        leave_at(&queue, &key(), 1, at(1), None, &TERMS)
            .unwrap()
            .who,
        2
    );
    assert_eq!(leave_at(&queue, &key(), 2, at(1), None, &TERMS), None);
    assert_eq!((queue.len(), queue.turn(b"k")), ((0, 0), None));
}

#[test]
fn limits_are_told() {
    let queue = queue();
    let busy = Terms {
        wait: Duration::ZERO,
        ..TERMS
    };
    assert_eq!(join(&queue, 0, &busy), TURN);
    assert_eq!(join(&queue, 1, &busy), Err(Refusal::Busy));
    for who in 1..3 {
        assert_eq!(join(&queue, who, &TERMS), Ok(Joined::Waiting));
    }
    let full = |waiting, limit| Err(Refusal::Full { waiting, limit });
    assert_eq!(join(&queue, 3, &TERMS), full(2, 2));
    let small = Queue::new(1);
    let other = Key::new("other").unwrap();
    for who in 0..2 {
        assert!(join(&small, who, &TERMS).is_ok());
    }
    assert!(join_at(&small, &other, 2, at(0), &TERMS).is_ok());
    assert_eq!(join_at(&small, &other, 3, at(0), &TERMS), full(1, 1));
}

#[test]
fn hope_goes_by_how_long_the_lock_was_held_of_late() {
    let queue = queue();
    let hopeful = Terms {
        refuses_hopeless: true,
        wait: Duration::from_millis(1000),
        ..TERMS
    };
    for who in 0..3 {
        assert!(join(&queue, who, &hopeful).is_ok(), "nothing is known yet");
    }
    assert_eq!((queue.len(), queue.estimate(&key())), ((1, 2), None));
    // Held for 400 ms; the second has the turn now, and the third waits.
    leave_at(&queue, &key(), 0, at(500), Some(at(100)), &hopeful);
    let estimate = Duration::from_millis(800);
    assert_eq!(queue.len(), (1, 1));
    assert_eq!(queue.estimate(&key()), Some(estimate));
    assert_eq!(join(&queue, 3, &hopeful), Ok(Joined::Waiting));
    let roomy = Terms {
        max_waiters: 9,
        ..hopeful
    };
    let (waiting, estimate) = (2, Duration::from_millis(1200));
    let hopeless = Err(Refusal::Hopeless { waiting, estimate });
    assert_eq!(join(&queue, 4, &roomy), hopeless);
}

#[test]
fn a_streak_is_bounded_in_time_and_number() {
    let heir = |terms: &Terms, now| {
        let queue = queue();
        for who in 0..3 {
            join(&queue, who, &TERMS).unwrap();
        }
        let first = queue.heir(&key(), at(1), at(0), terms, |_| true);
        let second = queue.heir(&key(), now, at(1), terms, |_| true);
        (first, second)
    };
    assert_eq!(heir(&TERMS, at(9)), (Some(1), Some(2)));
    assert_eq!(heir(&TERMS, at(10)), (Some(1), None));
    let once = Terms {
        max_handovers: 1,
        ..TERMS
    };
    assert_eq!(heir(&once, at(2)), (Some(1), None));
    let queue = queue();
    for who in 0..2 {
        join(&queue, who, &TERMS).unwrap();
    }
    let misfit = queue.heir(&key(), at(1), at(0), &TERMS, |_| false);
    assert_eq!((misfit, queue.len()), (None, (1, 1)), "it waits on");
}

#[test]
fn who_comes_back_at_once_goes_on_with_the_streak() {
    let queue = queue();
    let go = |now: u64| {
        let joined = join_at(&queue, &key(), now as usize, at(now), &TERMS);
        leave_at(
            &queue,
            &key(),
            now as usize,
            at(now + 1),
            Some(at(now)),
            &TERMS,
        );
        joined
    };
    for now in 0..10 {
        assert_eq!(go(now), TURN, "{now}");
    }
    assert_eq!(go(10), Ok(Joined::Turn { stands_back: true }));
    assert_eq!(go(11), TURN, "a new streak");
    for now in (20..60).step_by(4) {
        assert_eq!(go(now), TURN, "{now}: not at once");
    }
}

/// Who wants several keys has his turn when nobody has any of them, and keeps nobody from the others
/// until then.
#[test]
fn several_keys_are_had_together() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    let both = KeySet::all(b"", [&a, &b]).unwrap();
    let join_both = |who: usize| queue.join(&both, who as u64, at(0), &who, &TERMS);
    let leave = |key, who| leave_at(&queue, key, who, at(0), None, &TERMS);
    let next = |who| {
        let stands_back = false;
        Next { who, stands_back }
    };
    assert_eq!(join_at(&queue, &b, 0, at(0), &TERMS), TURN);
    assert_eq!(join_both(1), Ok(Joined::Waiting));
    assert_eq!(queue.len(), (2, 1));
    assert_eq!(
        join_at(&queue, &a, 2, at(0), &TERMS),
        TURN,
        "a is free for others"
    );
    assert_eq!(join_at(&queue, &b, 3, at(0), &TERMS), Ok(Joined::Waiting));
    assert_eq!(
        leave(&b, 0),
        Some(next(3)),
        "the first can have only one of them"
    );
    assert_eq!(leave(&a, 2), None);
    assert_eq!(leave(&b, 3), Some(next(1)));
    assert_eq!([queue.turn(b"a"), queue.turn(b"b")], [Some(1); 2]);
    assert_eq!(join_at(&queue, &a, 4, at(0), &TERMS), Ok(Joined::Waiting));
    assert_eq!(join_both(5), Ok(Joined::Waiting));
    assert_eq!(join_at(&queue, &b, 6, at(0), &TERMS), Ok(Joined::Waiting));
    let both_next = queue.leave(&both, 1, at(0), None, &TERMS);
    assert_eq!(both_next, [next(4), next(6)]);
    assert_eq!(
        queue.leave(&both, 5, at(0), None, &TERMS),
        [],
        "it gives up"
    );
    assert_eq!(leave(&a, 4), None);
    assert_eq!(leave(&b, 6), None);
    assert_eq!(queue.len(), (0, 0));
}

/// One of those who want the key, as its lease sees it.
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
    /// Who gives up stays in the line.
    Stays,
    /// Who is handed the lock keeps its place in the line as well.
    HeirStays,
    /// The turn does not pass on.
    KeepsTurn,
}

struct World {
    queue: Queue<usize>,
    stages: [Stage; 3],
    /// Who holds the turn's lease, in the name of whom the line knows it.
    lease: Option<usize>,
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
                self.stages[who] = match join(&self.queue, who, &TERMS) {
                    Ok(Joined::Turn { .. }) => Stage::Turn,
                    Ok(Joined::Waiting) => Stage::Waiting,
                    Err(refusal) => panic!("{refusal:?}"),
                };
                self.joined.push(who);
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
                let heir = self.queue.heir(&key(), at(0), at(0), &TERMS, |_| true);
                match heir {
                    Some(heir) => {
                        if self.mutant == Mutant::HeirStays {
                            join(&self.queue, heir, &TERMS).unwrap();
                        }
                        self.stages[heir] = Stage::Held;
                        self.served.push(heir);
                    }
                    None => self.leave(who, true),
                }
            }
            Step::ReleaseToNobody(who) => {
                self.stages[who] = Stage::Gone;
                while let Some(heir) = self.queue.heir(&key(), at(0), at(0), &TERMS, |_| true) {
                    // It has given up, and finds that it is in no line any more.
                    self.stages[heir] = Stage::Gone;
                    let next = leave_at(&self.queue, &key(), heir, at(0), None, &TERMS);
                    assert_eq!(next, None);
                }
                self.leave(who, true);
            }
        }
    }

    fn leave(&mut self, who: usize, held: bool) {
        // The line knows a lock that was handed over by the lease that acquired it.
        let name = if held {
            self.lease.take().unwrap_or(who)
        } else {
            who
        };
        if self.mutant == Mutant::KeepsTurn {
            return;
        }
        let held = held.then(|| at(0));
        if let Some(next) = leave_at(&self.queue, &key(), name, at(0), held, &TERMS) {
            self.stages[next.who] = Stage::Turn;
        }
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
            return Some("some wait and nobody has the turn");
        }
        if self.queue.len() != (usize::from(turns + held > 0), waiting) {
            return Some("the line is not of those who are there");
        }
        let order = self.joined.iter().filter(|it| self.served.contains(it));
        if !order.eq(&self.served) {
            return Some("served out of turn");
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
fn every_order_of_events_leaves_a_line_of_those_who_are_there() {
    let orders = explore(Mutant::None).unwrap_or_else(|(path, fault)| panic!("{fault}: {path:?}"));
    assert!(orders > 1000, "{orders}");
    for mutant in [Mutant::Stays, Mutant::HeirStays, Mutant::KeepsTurn] {
        assert!(explore(mutant).is_err(), "{mutant:?} is found out");
    }
}
