//! The queues of several keys: turns for all keys at once, reservations, and every order of events for some
//! casts of waiters.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::*;
use crate::engine::queue::{reservation::ReservationRule, ticket::comparisons};

const ROOMY: QueuePolicy = QueuePolicy {
    max_waiters_per_key: usize::MAX,
    ..POLICY
};

/// So strict that few waiters show what it does. A reservation may lapse at any moment, and may be earned at
/// once after that: time that passes in between only lets more waiters go on.
const RULE: ReservationRule = ReservationRule {
    max_overtakings: 1,
    max_wait: Duration::MAX,
    lasts: Duration::ZERO,
    max_lasts: Duration::ZERO,
    reserves_out_of_order: false,
};

/// Never lets anybody overtake.
const STRICT: ReservationRule = ReservationRule {
    max_overtakings: 0,
    ..RULE
};

fn keys(names: &str) -> KeySet {
    KeySet::all(b"", names.split_inclusive(|_: char| true)).unwrap()
}

/// A waiter for several keys has its turn when all are free, and is overtaken until then.
#[test]
fn several_keys_are_given_together() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    let both = keys("ab");
    let join_both = |who: usize| queue.join(&both, ticket(who), at(0), &who, &POLICY);
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

/// Nobody overtakes it any more once it has waited for long enough, neither at a free key nor by handover;
/// and a reservation lapses.
#[test]
fn keys_are_reserved_for_one_that_has_waited_long() {
    let queue = queue();
    let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
    let late = at(100);
    assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
    let joined = queue.join(&keys("ab"), ticket(1), at(0), &1, &ROOMY);
    assert_eq!(joined, WAITING);
    assert_eq!(join_at(&queue, &b, 2, at(0), &ROOMY), WAITING);
    let successor = |now, held| queue.successor(&b, now, held, &ROOMY, |_| true);
    assert_eq!(successor(late, at(99)), None);
    let no_wait = QueuePolicy {
        wait: Duration::ZERO,
        ..ROOMY
    };
    let lapse = |at| {
        let follow_up = Some(FollowUp::ScheduleLapse { waiter: 1, at });
        Ok(JoinOutcome::Waiting { follow_up })
    };
    let busy = Err(Refused {
        refusal: Refusal::Busy,
        follow_up: Some(FollowUp::ScheduleLapse {
            waiter: 1,
            at: at(150),
        }),
    });
    assert_eq!(join_at(&queue, &a, 3, late, &no_wait), busy);
    assert_eq!(join_at(&queue, &a, 3, late, &ROOMY), WAITING, "the same");
    assert_eq!(join_at(&queue, &a, 4, late, &ROOMY), WAITING, "the same");
    assert_eq!(queue.lapse(ticket(1), at(149)), [], "too early");
    assert_eq!(queue.lapse(ticket(1), at(150)), [turn(3)]);
    assert_eq!(
        leave_at(&queue, &a, 3, at(160), None, &ROOMY),
        Some(turn(4))
    );
    assert_eq!(leave_at(&queue, &a, 4, at(170), None, &ROOMY), None);
    // It is to be earned again, and then lasts twice as long as the first.
    assert_eq!(join_at(&queue, &a, 5, at(249), &ROOMY), TURN, "not due");
    assert_eq!(leave_at(&queue, &a, 5, at(250), None, &ROOMY), None);
    assert_eq!(join_at(&queue, &a, 6, at(250), &ROOMY), lapse(at(350)));
    assert_eq!(queue.lapse(ticket(1), at(350)), [turn(6)]);
    assert_eq!(leave_at(&queue, &a, 6, at(351), None, &ROOMY), None);
    assert_eq!(join_at(&queue, &a, 7, at(450), &ROOMY), lapse(at(650)));
    let next = leave_at(&queue, &b, 0, at(600), None, &ROOMY);
    assert_eq!(next, Some(turn(1)), "before all that came later");
    assert_eq!(queue.lapse(ticket(1), at(650)), [], "it waits no more");
}

/// However often one is overtaken after a lapse, none of its keys is reserved before as much time has passed as
/// the reservation lasted; nor are they for the next one if it gives up.
#[test]
fn keys_are_open_after_a_reservation_for_as_long_as_it_lasted() {
    for gives_up in [false, true] {
        let queue = queue();
        let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
        assert_eq!(join_at(&queue, &b, 0, at(0), &ROOMY), TURN);
        for who in [1, 2] {
            let joined = queue.join(&keys("ab"), ticket(who), at(0), &who, &ROOMY);
            assert_eq!(joined, WAITING);
        }
        let lapse = |waiter, at| {
            let follow_up = Some(FollowUp::ScheduleLapse { waiter, at });
            Ok(JoinOutcome::Waiting { follow_up })
        };
        let joined = join_at(&queue, &a, 3, at(100), &ROOMY);
        assert_eq!(joined, lapse(1, at(150)));
        // It gives up a moment before its reservation would lapse.
        let (now, next) = if gives_up {
            let next = queue.leave(&keys("ab"), ticket(1), at(149), None, &ROOMY);
            (149, next)
        } else {
            (150, queue.lapse(ticket(1), at(150)))
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
        let lasts = if gives_up { 50 } else { 100 };
        let joined = join_at(&queue, &a, 30, at(open_until), &ROOMY);
        assert_eq!(joined, lapse(reserver, at(open_until + lasts)));
    }
}

/// What a turn costs does not depend on how many wait for several keys, in whatever order they give up.
#[test]
fn the_cost_of_a_turn_hardly_grows_with_the_number_of_waiters() {
    let [few, many] = [256, 65_536].map(|count| {
        let queue = queue();
        let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
        for key in [&a, &b] {
            assert_eq!(join_at(&queue, key, 0, at(0), &ROOMY), TURN);
        }
        let join_both = |who: usize| queue.join(&keys("ab"), ticket(who), at(0), &who, &ROOMY);
        let others = 1..=count;
        for who in others.clone() {
            assert_eq!(join_both(who), WAITING);
        }
        for who in [count + 1, count + 2] {
            assert_eq!(join_at(&queue, &a, who, at(0), &ROOMY), WAITING);
        }
        let handover = comparisons::during(|| {
            let successor = queue.successor(&a, at(0), at(0), &ROOMY, |_| true);
            assert_eq!(successor, Some(count + 1));
        });
        let turn_of_next = comparisons::during(|| {
            let next = leave_at(&queue, &a, 0, at(0), None, &ROOMY);
            assert_eq!(next, Some(turn(count + 2)));
        });
        let give_up = comparisons::during(|| {
            for who in others.rev() {
                let next = queue.leave(&keys("ab"), ticket(who), at(0), None, &ROOMY);
                assert_eq!(next, []);
            }
        });
        println!("{count}: {handover}, {turn_of_next}, {give_up}");
        (handover.max(turn_of_next), give_up / count)
    });
    // There are 256 times as many.
    assert!(many.0 <= 3 * few.0, "{few:?} {many:?}");
    assert!(many.1 <= 3 * few.1, "{few:?} {many:?}");
}

/// The sets of keys that one of a cast locks, each while it holds those before. Then it releases all.
type Part = &'static [&'static str];

/// Several keys beside single ones, sets of keys that overlap, and holders that lock again.
const CASTS: [&[Part]; 5] = [
    &[&["ab"], &["a"], &["a"], &["b"], &["b"]],
    &[&["ab"], &["ab"], &["a"], &["a"], &["b"]],
    &[&["ab"], &["bc"], &["ac"], &["b"]],
    &[&["ab"], &["b", "a"], &["a"], &["a"]],
    &[&["ab"], &["b", "ac"], &["a"], &["a"]],
];

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    NeverReserves,
    NeverLapses,
    /// The keys of a set are not all reserved for the same waiter.
    ReservesOutOfOrder,
    /// Those that could go on when a waiter gives up do not.
    ForgetsOthers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Locks its next set of keys.
    Lock(usize),
    /// Releases all, or hands it over.
    Release(usize),
    /// Waits no longer for several keys.
    GiveUp(usize),
    Lapse(usize),
}

/// One of a cast.
#[derive(Clone, Debug, Default)]
struct Actor {
    /// With the ticket that has the turn, which is another's after a handover.
    held: Vec<(Ticket, KeySet)>,
    waits: Option<Waits>,
    is_gone: bool,
}

#[derive(Clone, Debug)]
struct Waits {
    ticket: Ticket,
    keys: KeySet,
    lapses_at: Option<Timestamp>,
    overtakings: u32,
    /// The last that may pass, by key.
    lets_pass: BTreeMap<Key, Ticket>,
}

struct World {
    queue: Queue<usize>,
    parts: &'static [Part],
    actors: Vec<Actor>,
    now: Timestamp,
    tickets: usize,
    policy: QueuePolicy,
    max_overtakings: u32,
    mutant: Mutant,
    fault: Option<&'static str>,
}

impl World {
    fn new(
        parts: &'static [Part],
        hands_over: bool,
        mut rule: ReservationRule,
        mutant: Mutant,
    ) -> Self {
        let max_overtakings = rule.max_overtakings;
        if mutant == Mutant::NeverReserves {
            rule.max_overtakings = u32::MAX;
        }
        rule.reserves_out_of_order = mutant == Mutant::ReservesOutOfOrder;
        Self {
            queue: Queue::with_rule(usize::MAX, rule),
            parts,
            actors: vec![Actor::default(); parts.len()],
            now: at(0),
            tickets: 0,
            policy: QueuePolicy {
                streak: Duration::MAX,
                max_handovers: if hands_over { u32::MAX } else { 0 },
                ..ROOMY
            },
            max_overtakings,
            mutant,
            fault: None,
        }
    }

    fn steps(&self) -> Vec<Step> {
        let of = |(index, actor): (usize, &Actor)| {
            let mut steps = Vec::new();
            match &actor.waits {
                _ if actor.is_gone => {}
                Some(waits) => {
                    if waits.lapses_at.is_some() && self.mutant != Mutant::NeverLapses {
                        steps.push(Step::Lapse(index));
                    }
                    if waits.keys.has_several() {
                        steps.push(Step::GiveUp(index));
                    }
                }
                None if actor.held.len() < self.parts[index].len() => {
                    steps.push(Step::Lock(index));
                }
                None => steps.push(Step::Release(index)),
            }
            steps
        };
        self.actors.iter().enumerate().flat_map(of).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Lock(index) => self.lock(index),
            Step::Release(index) => {
                self.actors[index].is_gone = true;
                while let Some((turn, keys)) = self.actors[index].held.pop() {
                    self.release(turn, &keys);
                }
            }
            Step::GiveUp(index) => {
                self.actors[index].is_gone = true;
                if let Some(waits) = self.actors[index].waits.take() {
                    let next = self.leave(&waits.keys, waits.ticket, None);
                    if self.mutant != Mutant::ForgetsOthers {
                        self.apply(next);
                    }
                }
                self.take(Step::Release(index));
            }
            Step::Lapse(index) => {
                let taken = self.taken();
                let Some(waits) = &mut self.actors[index].waits else {
                    return;
                };
                let Some(lapses_at) = waits.lapses_at.take() else {
                    return;
                };
                self.now = self.now.max(lapses_at);
                for key in waits.keys.iter().filter(|key| !taken.contains(*key)) {
                    let last = ticket(self.tickets);
                    waits.lets_pass.insert(key.clone(), last);
                }
                waits.overtakings = 0;
                let next = self.queue.lapse(waits.ticket, self.now);
                self.apply(next);
            }
        }
    }

    fn lock(&mut self, index: usize) {
        let wanted = keys(self.parts[index][self.actors[index].held.len()]);
        self.tickets += 1;
        let ticket = ticket(self.tickets);
        let joined = self
            .queue
            .join(&wanted, ticket, self.now, &index, &self.policy);
        self.actors[index].waits = Some(Waits {
            ticket,
            keys: wanted,
            lapses_at: None,
            overtakings: 0,
            lets_pass: BTreeMap::new(),
        });
        match joined.expect("there is room") {
            JoinOutcome::Turn { .. } => self.enter(index, ticket),
            JoinOutcome::Waiting { follow_up } => self.apply(follow_up),
        }
    }

    fn release(&mut self, turn: Ticket, keys: &KeySet) {
        if !keys.has_several() {
            let (key, now) = (keys.first(), self.now);
            let successor = self.queue.successor(key, now, now, &self.policy, |_| true);
            if let Some(successor) = successor {
                return self.enter(successor, turn);
            }
        }
        let next = self.leave(keys, turn, Some(self.now));
        self.apply(next);
    }

    fn leave(&self, keys: &KeySet, turn: Ticket, held: Option<Timestamp>) -> Vec<FollowUp<usize>> {
        self.queue.leave(keys, turn, self.now, held, &self.policy)
    }

    fn apply(&mut self, next: impl IntoIterator<Item = FollowUp<usize>>) {
        for next in next {
            match next {
                FollowUp::StartTurn { waiter, .. } => match &self.actors[waiter].waits {
                    Some(waits) => self.enter(waiter, waits.ticket),
                    None => self.fault = Some("one that does not wait has the turn"),
                },
                FollowUp::ScheduleLapse { waiter, at } => match &mut self.actors[waiter].waits {
                    Some(waits) => waits.lapses_at = Some(at),
                    None => self.fault = Some("one that does not wait has reservations"),
                },
            }
        }
    }

    /// Lets one in that waits, with the turn of that ticket.
    fn enter(&mut self, index: usize, turn: Ticket) {
        let Some(waits) = self.actors[index].waits.take() else {
            self.fault = Some("one that does not wait has the lock");
            return;
        };
        if waits.keys.iter().any(|key| self.taken().contains(key)) {
            self.fault = Some("two have one key");
        }
        let Waits { ticket, keys, .. } = waits;
        self.note_overtaking(ticket, &keys);
        self.actors[index].held.push((turn, keys));
    }

    fn note_overtaking(&mut self, ticket: Ticket, keys: &KeySet) {
        let waiting = self.waiting();
        let is_first = |it: &Waits| {
            let shares = |other: &Waits| {
                it.keys
                    .iter()
                    .any(|key| other.keys.iter().any(|o| o == key))
            };
            !waiting
                .iter()
                .any(|other| other.ticket < it.ticket && shares(other))
        };
        let firsts: Vec<_> = waiting
            .iter()
            .filter(|it| is_first(it))
            .map(|it| it.ticket)
            .collect();
        let all = self.actors.iter_mut().filter_map(|it| it.waits.as_mut());
        for overtaken in all.filter(|it| it.keys.has_several() && it.ticket < ticket) {
            let passes = |key| {
                overtaken
                    .lets_pass
                    .get(key)
                    .is_some_and(|last| ticket <= *last)
            };
            let shared = keys
                .iter()
                .filter(|key| overtaken.keys.iter().any(|it| it == *key));
            if firsts.contains(&overtaken.ticket) && shared.clone().any(|key| !passes(key)) {
                overtaken.overtakings += 1;
                if overtaken.overtakings > self.max_overtakings {
                    self.fault = Some("overtaken more often than the rule says");
                }
            }
        }
    }

    fn waiting(&self) -> Vec<Waits> {
        let waiting = self.actors.iter().filter_map(|it| it.waits.clone());
        waiting.collect()
    }

    fn taken(&self) -> Vec<Key> {
        let held = self.actors.iter().flat_map(|it| &it.held);
        held.flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }

    /// Describes all that may matter for what comes.
    fn state(&self) -> String {
        let keys = &self.queue.0.lock().keys;
        let by_key: BTreeMap<_, _> = keys.by_key.iter().collect();
        format!(
            "{:?} {by_key:?} {:?} {:?}",
            self.actors, keys.multi, self.now
        )
    }

    /// Returns what is wrong, if anything.
    fn fault(&self) -> Option<&'static str> {
        let (waiting, taken) = (self.waiting(), self.taken());
        let goes_on = |step: &Step| !matches!(step, Step::GiveUp(_));
        if self.fault.is_some() {
            self.fault
        } else if !waiting.is_empty() && taken.is_empty() {
            Some("all keys are free, and some wait")
        } else if !waiting.is_empty() && !self.steps().iter().any(goes_on) {
            Some("a deadlock")
        } else if self.queue.size().waiting != waiting.len() {
            Some("the queue is not of those that wait")
        } else {
            None
        }
    }
}

/// Returns how many states any order of events leads to, or what is wrong in one of them.
fn explore(
    parts: &'static [Part],
    hands_over: bool,
    rule: ReservationRule,
    mutant: Mutant,
) -> Result<usize, (Vec<Step>, &'static str)> {
    let mut seen = HashSet::new();
    let mut paths = VecDeque::from([Vec::new()]);
    while let Some(path) = paths.pop_front() {
        let mut world = World::new(parts, hands_over, rule, mutant);
        for step in &path {
            world.take(*step);
        }
        if let Some(fault) = world.fault() {
            return Err((path, fault));
        }
        if !seen.insert(world.state()) {
            continue;
        }
        paths.extend(world.steps().into_iter().map(|step| {
            let mut path: Vec<Step> = path.clone();
            path.push(step);
            path
        }));
    }
    Ok(seen.len())
}

/// All casts, without handover and with it.
fn casts() -> impl Iterator<Item = (&'static [Part], bool)> {
    let casts = CASTS.into_iter();
    casts.flat_map(|cast| [(cast, false), (cast, true)])
}

#[test]
fn every_order_of_events_serves_all_within_the_bound() {
    let mut states = 0;
    for rule in [RULE, STRICT] {
        for (cast, hands_over) in casts() {
            states += explore(cast, hands_over, rule, Mutant::None)
                .unwrap_or_else(|(path, fault)| panic!("{cast:?} {hands_over}: {fault}: {path:?}"));
        }
    }
    println!("{states} states");
    assert!(states > 10_000, "{states}");
}

#[test]
fn every_order_of_events_finds_what_is_done_wrong() {
    for (mutant, rule, fault) in [
        (
            Mutant::NeverReserves,
            RULE,
            "overtaken more often than the rule says",
        ),
        (Mutant::NeverLapses, RULE, "a deadlock"),
        (
            Mutant::ReservesOutOfOrder,
            STRICT,
            "all keys are free, and some wait",
        ),
        (
            Mutant::ForgetsOthers,
            RULE,
            "the queue is not of those that wait",
        ),
    ] {
        let found = casts().find_map(|(cast, hands_over)| {
            let (path, found) = explore(cast, hands_over, rule, mutant).err()?;
            (found == fault).then_some(path)
        });
        println!("{mutant:?}: {fault}: {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}
