//! Every order of events for some casts of leases, of one key or of several.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::*;
use crate::engine::queue::reservation::ReservationRule;

/// So strict that few waiters show what it does. A reservation may expire at any moment, and no time passes after
/// that until the next one.
const RULE: ReservationRule = ReservationRule {
    max_overtakings: 1,
    max_wait: Duration::MAX,
    duration: Duration::ZERO,
    max_duration: Duration::ZERO,
};

/// Never lets a waiter overtake.
const STRICT: ReservationRule = ReservationRule {
    max_overtakings: 0,
    ..RULE
};

/// As strict, but keys are open for a while after a reservation has expired.
const OPENING: ReservationRule = ReservationRule {
    duration: Duration::from_millis(1),
    max_duration: Duration::from_millis(1),
    ..STRICT
};

/// The sets of keys that one actor locks, each while it holds those before. Then it releases all of them.
type Part = &'static [&'static str];

/// Several keys beside single ones, sets of keys that overlap, and holders that lock again.
const CASTS: [&[Part]; 5] = [
    &[&["ab"], &["a"], &["a"], &["b"], &["b"]],
    &[&["ab"], &["ab"], &["a"], &["a"], &["b"]],
    &[&["ab"], &["bc"], &["ac"], &["b"]],
    &[&["ab"], &["b", "a"], &["a"], &["a"]],
    &[&["ab"], &["b", "ac"], &["a"], &["a"]],
];

const SMALL_CASTS: [&[Part]; 3] = [
    &[&["ab"], &["a"], &["a"], &["b"]],
    &[&["ab"], &["ab"], &["a"], &["b"]],
    &[&["ab"], &["b", "a"], &["a"]],
];

/// Locks of one key. What happens to them is simple, so more may happen: a lock is not granted, and a waiter gives up
/// while the lock is handed over to it.
const OF_ONE_KEY: &[Part] = &[&["a"], &["a"], &["a"]];

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    NeverReserves,
    NeverExpires,
    /// The waiters that could have a turn when another gives up do not get it.
    ForgetsOthers,
    /// The keys are expected to be open for longer than they are.
    OpensTooShortly,
    /// The waiters for one key are expected to be served in the reverse order.
    ServesInOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Locks its next set of keys.
    Lock(usize),
    /// Releases all, or hands it over.
    Release(usize),
    /// Releases it, while all to whom it could be handed over give up at that very moment.
    ReleaseToNobody(usize),
    /// Has the turn, and does not get the lock.
    Fail(usize),
    /// Waits no longer.
    GiveUp(usize),
    Lapse(usize),
    /// Time passes until keys are not open any more.
    Close,
}

/// One of a cast.
#[derive(Clone, Debug, Default)]
struct Actor {
    /// With the tickets that have the turns. After a handover it is the ticket of another actor.
    held: Vec<(Ticket, KeySet)>,
    waits: Option<Waits>,
    is_gone: bool,
}

#[derive(Clone, Debug)]
struct Waits {
    ticket: Ticket,
    keys: KeySet,
    expires_at: Option<Timestamp>,
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
    /// The duration of each reservation.
    duration: Duration,
    mutant: Mutant,
    /// Until when no reservation may keep a waiter from a key.
    open_until: BTreeMap<Key, Timestamp>,
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
        Self {
            queue: Queue::with_rule(usize::MAX, rule, &Random::system()),
            parts,
            actors: vec![Actor::default(); parts.len()],
            now: at(0),
            tickets: 0,
            policy: QueuePolicy {
                streak: if hands_over {
                    Duration::MAX
                } else {
                    Duration::ZERO
                },
                ..ROOMY
            },
            max_overtakings,
            duration: rule.duration,
            mutant,
            open_until: BTreeMap::new(),
            fault: None,
        }
    }

    fn is_of_one_key(&self) -> bool {
        self.parts == OF_ONE_KEY
    }

    fn steps(&self) -> Vec<Step> {
        let of = |(index, actor): (usize, &Actor)| {
            let mut steps = Vec::new();
            match &actor.waits {
                _ if actor.is_gone => {}
                Some(waits) => {
                    if waits.expires_at.is_some() && self.mutant != Mutant::NeverExpires {
                        steps.push(Step::Lapse(index));
                    }
                    if waits.keys.has_several() || self.is_of_one_key() {
                        steps.push(Step::GiveUp(index));
                    }
                }
                None if actor.held.len() < self.parts[index].len() => {
                    steps.push(Step::Lock(index));
                }
                None => steps.push(Step::Release(index)),
            }
            if self.is_of_one_key() && !actor.held.is_empty() {
                steps.extend([Step::ReleaseToNobody(index), Step::Fail(index)]);
            }
            steps
        };
        let steps = self.actors.iter().enumerate().flat_map(of);
        let closes = self.next_close().map(|_| Step::Close);
        steps.chain(closes).collect()
    }

    fn take(&mut self, step: Step) {
        self.take_part_of(step);
        // A queue that is empty does not remember that its key is open.
        let keys = &self.queue.0.lock().keys;
        let is_remembered = |key: &Key, _: &mut Timestamp| keys.by_key.contains_key(key);
        self.open_until.retain(is_remembered);
    }

    fn take_part_of(&mut self, step: Step) {
        match step {
            Step::Lock(index) => self.lock(index),
            Step::Release(index) => {
                self.actors[index].is_gone = true;
                while let Some((turn, keys)) = self.actors[index].held.pop() {
                    self.release(turn, &keys);
                }
            }
            Step::ReleaseToNobody(index) => {
                let (key, now) = (Key::new("a").unwrap(), self.now);
                let next = || {
                    self.queue
                        .successor(&key, now, now, &self.policy, |_| true)
                        .next()
                };
                let gone: Vec<_> = std::iter::from_fn(next).collect();
                for successor in gone {
                    // The queue has removed it already.
                    self.actors[successor].is_gone = true;
                    if let Some(waits) = self.actors[successor].waits.take() {
                        assert_eq!(self.leave(&waits.keys, waits.ticket, None), []);
                    }
                }
                self.take_part_of(Step::Release(index));
            }
            Step::Fail(index) => {
                self.actors[index].is_gone = true;
                while let Some((turn, keys)) = self.actors[index].held.pop() {
                    let next = self.leave(&keys, turn, None);
                    self.apply(next);
                }
            }
            Step::GiveUp(index) => {
                self.actors[index].is_gone = true;
                if let Some(waits) = self.actors[index].waits.take() {
                    if let Some(expires_at) = waits.expires_at {
                        let left = expires_at.saturating_duration_since(self.now);
                        self.open(&waits.keys, self.duration.saturating_sub(left));
                    }
                    let next = self.leave(&waits.keys, waits.ticket, None);
                    if self.mutant != Mutant::ForgetsOthers {
                        self.apply(next);
                    }
                }
                self.take_part_of(Step::Release(index));
            }
            Step::Lapse(index) => {
                let taken = self.taken();
                let Some(waits) = &mut self.actors[index].waits else {
                    return;
                };
                let Some(expires_at) = waits.expires_at.take() else {
                    return;
                };
                self.now = self.now.max(expires_at);
                for key in waits.keys.iter().filter(|key| !taken.contains(*key)) {
                    let last = ticket(self.tickets);
                    waits.lets_pass.insert(key.clone(), last);
                }
                waits.overtakings = 0;
                let (ticket, keys) = (waits.ticket, waits.keys.clone());
                self.open(&keys, self.duration);
                let next = self.queue.expire(ticket, self.now);
                self.apply(next);
            }
            Step::Close => self.now = self.next_close().unwrap_or(self.now),
        }
    }

    /// Expects that the keys are open from now on.
    fn open(&mut self, keys: &KeySet, time: Duration) {
        let until = self.now.saturating_add(time);
        for key in keys.iter() {
            let open_until = self.open_until.entry(key.clone()).or_insert(until);
            *open_until = until.max(*open_until);
        }
    }

    fn is_open(&self, key: &Key) -> bool {
        let extra = match self.mutant {
            Mutant::OpensTooShortly => self.duration,
            _ => Duration::ZERO,
        };
        let until = self.open_until.get(key);
        until.is_some_and(|until| self.now < until.saturating_add(extra))
    }

    /// Returns when a key will not be open any more.
    fn next_close(&self) -> Option<Timestamp> {
        let ahead = self.open_until.values().filter(|it| self.now < **it);
        ahead.min().copied()
    }

    fn lock(&mut self, index: usize) {
        let wanted = keys(self.parts[index][self.actors[index].held.len()]);
        self.tickets += 1;
        let ticket = ticket(self.tickets);
        let joined = self
            .queue
            .join(&wanted, ticket, self.now, &self.policy, |_| index);
        self.actors[index].waits = Some(Waits {
            ticket,
            keys: wanted,
            expires_at: None,
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
            let successor = self
                .queue
                .successor(key, now, now, &self.policy, |_| true)
                .next();
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
                FollowUp::ScheduleExpiry { waiter, at } => match &mut self.actors[waiter].waits {
                    Some(waits) => waits.expires_at = Some(at),
                    None => self.fault = Some("one that does not wait has reservations"),
                },
            }
        }
    }

    /// Lets a waiter have the lock, with the turn of that ticket.
    fn enter(&mut self, index: usize, turn: Ticket) {
        let Some(waits) = self.actors[index].waits.take() else {
            self.fault = Some("one that does not wait has the lock");
            return;
        };
        if waits.keys.iter().any(|key| self.taken().contains(key)) {
            self.fault = Some("two have one key");
        }
        let Waits { ticket, keys, .. } = waits;
        let is_earlier = |other: &Waits| match self.mutant {
            Mutant::ServesInOrder => other.ticket > ticket,
            _ => other.ticket < ticket,
        };
        if self.is_of_one_key() && self.waiting().iter().any(is_earlier) {
            self.fault = Some("not served in order of arrival");
        }
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
        let (now, open_until) = (self.now, &self.open_until);
        let is_open = |key: &Key| open_until.get(key).is_some_and(|until| now < *until);
        let all = self.actors.iter_mut().filter_map(|it| it.waits.as_mut());
        for overtaken in all.filter(|it| it.keys.has_several() && it.ticket < ticket) {
            let passes = |key| {
                overtaken
                    .lets_pass
                    .get(key)
                    .is_some_and(|last| ticket <= *last)
            };
            // While they are open, waiters overtake without a bound.
            if overtaken.keys.iter().any(is_open) {
                continue;
            }
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

    /// Describes all that may matter for the next steps.
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
        let goes_on = |step: &Step| !matches!(step, Step::GiveUp(_) | Step::Close);
        let is_withheld = |it: &Waits| {
            let is_free = |key| !taken.contains(key) && self.is_open(key);
            it.keys.iter().all(is_free)
        };
        if self.fault.is_some() {
            self.fault
        } else if !waiting.is_empty() && taken.is_empty() {
            Some("all keys are free, and some wait")
        } else if !waiting.is_empty() && !self.steps().iter().any(goes_on) {
            Some("a deadlock")
        } else if self.queue.status().waiting != waiting.len() {
            Some("the queue is not of those that wait")
        } else if waiting.iter().any(is_withheld) {
            Some("kept from keys that are free and open")
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

/// Returns the casts for a rule, without handover and with it.
fn casts(rule: ReservationRule) -> impl Iterator<Item = (&'static [Part], bool)> {
    // Where time passes there are many more states.
    let casts = if rule == OPENING {
        &SMALL_CASTS[..]
    } else {
        &CASTS[..]
    };
    let casts = casts.iter().copied().chain([OF_ONE_KEY]);
    casts.flat_map(|cast| [(cast, false), (cast, true)])
}

#[test]
fn every_order_of_events_serves_all_within_the_bound() {
    let mut states = 0;
    for rule in [RULE, STRICT, OPENING] {
        for (cast, hands_over) in casts(rule) {
            states += explore(cast, hands_over, rule, Mutant::None)
                .unwrap_or_else(|(path, fault)| panic!("{cast:?} {hands_over}: {fault}: {path:?}"));
        }
        println!("{states} states");
    }
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
        (Mutant::NeverExpires, RULE, "a deadlock"),
        (
            Mutant::ForgetsOthers,
            RULE,
            "the queue is not of those that wait",
        ),
        (
            Mutant::OpensTooShortly,
            OPENING,
            "kept from keys that are free and open",
        ),
        (
            Mutant::ServesInOrder,
            RULE,
            "not served in order of arrival",
        ),
    ] {
        let found = casts(rule).find_map(|(cast, hands_over)| {
            let (path, found) = explore(cast, hands_over, rule, mutant).err()?;
            (found == fault).then_some(path)
        });
        println!("{mutant:?}: {fault}: {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}
