//! Every order of events for some casts of leases, of one key or of several.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::*;
use crate::engine::queue::kept_keys::{SLICE, kept_until};

/// The sets of keys that one actor locks, each while it holds those before. Then it releases all of them.
type Part = &'static [&'static str];

/// Several keys beside single ones, sets of keys that overlap, and holders that lock again.
const CASTS: [&[Part]; 5] = [
    &[&["ab"], &["a"], &["a"], &["b"]],
    &[&["ab"], &["ab"], &["a"], &["b"]],
    &[&["ab"], &["bc"], &["ac"], &["b"]],
    &[&["ab"], &["b", "a"], &["a"], &["a"]],
    &[&["ab"], &["b", "ac"], &["a"]],
];

/// Locks of one key. What happens to them is simple, so more may happen: a lock is not granted, and a waiter gives up
/// while the lock is handed over to it.
const OF_ONE_KEY: &[Part] = &[&["a"], &["a"], &["a"]];

/// How often another slice of time begins.
const SLICES: usize = 3;

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// The queue is not asked again when a slice is over.
    NeverLooksAgain,
    /// The waiters that could have a turn when another gives up do not get it.
    ForgetsOthers,
    /// Keys are expected to be kept in the other slices.
    KeepsInOtherSlices,
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
    /// Looks again at the end of a slice.
    Look(usize),
    NextSlice,
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
    look_at: Option<Timestamp>,
}

struct World {
    queue: Queue<usize>,
    parts: &'static [Part],
    actors: Vec<Actor>,
    now: Timestamp,
    slices: usize,
    tickets: usize,
    policy: QueuePolicy,
    mutant: Mutant,
    fault: Option<&'static str>,
}

impl World {
    fn new(parts: &'static [Part], hands_over: bool, mutant: Mutant) -> Self {
        Self {
            queue: queue(),
            parts,
            actors: vec![Actor::default(); parts.len()],
            now: at(0),
            slices: 0,
            tickets: 0,
            policy: QueuePolicy {
                streak: if hands_over {
                    Duration::MAX
                } else {
                    Duration::ZERO
                },
                ..ROOMY
            },
            mutant,
            fault: None,
        }
    }

    fn copy(&self) -> Self {
        Self {
            queue: Queue(Mutex::new(self.queue.0.lock().clone())),
            actors: self.actors.clone(),
            ..*self
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
                    if waits.look_at.is_some() {
                        steps.push(Step::Look(index));
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
        // Time matters only to those that wait for several keys.
        let waits_for_several = self.waiting().iter().any(|it| it.keys.has_several());
        let changes = self.slices < SLICES && waits_for_several;
        steps.chain(changes.then_some(Step::NextSlice)).collect()
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
            Step::ReleaseToNobody(index) => {
                let [(turn, keys)] = &self.actors[index].held[..] else {
                    panic!("it has one lock");
                };
                let next = || self.successor(place(keys, *turn));
                for successor in std::iter::from_fn(next).collect::<Vec<_>>() {
                    // The queue has removed it already.
                    self.actors[successor].is_gone = true;
                    if let Some(waits) = self.actors[successor].waits.take() {
                        assert_eq!(self.leave(&waits.keys, waits.ticket, None), []);
                    }
                }
                self.take(Step::Release(index));
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
                    let next = self.leave(&waits.keys, waits.ticket, None);
                    if self.mutant != Mutant::ForgetsOthers {
                        self.apply(next);
                    }
                }
                self.take(Step::Release(index));
            }
            Step::Look(index) => {
                let waits = self.actors[index].waits.as_mut();
                let look = waits.and_then(|it| Some((it.look_at.take()?, it.keys.clone())));
                if let Some((look_at, keys)) = look {
                    self.now = self.now.max(look_at);
                    let next = self.queue.look_again(&keys, self.now);
                    self.apply(next);
                }
            }
            Step::NextSlice => {
                self.slices += 1;
                self.now = self.now.saturating_add(SLICE);
            }
        }
    }

    fn lock(&mut self, index: usize) {
        let keys = keys(self.parts[index][self.actors[index].held.len()]);
        self.tickets += 1;
        let ticket = ticket(self.tickets);
        let (now, policy) = (self.now, &self.policy);
        let joined = self.queue.join(place(&keys, ticket), now, policy, &index);
        self.actors[index].waits = Some(Waits {
            ticket,
            keys,
            look_at: None,
        });
        match joined.expect("there is room") {
            JoinOutcome::Turn { .. } => self.enter(index, ticket),
            JoinOutcome::Waiting { look_at } => self.note_look(index, look_at),
        }
    }

    fn release(&mut self, turn: Ticket, keys: &KeySet) {
        if !keys.has_several()
            && let Some(successor) = self.successor(place(keys, turn))
        {
            return self.enter(successor, turn);
        }
        let next = self.leave(keys, turn, Some(self.now));
        self.apply(next);
    }

    fn successor(&self, place: QueuePlace<'_>) -> Option<usize> {
        let (now, policy) = (self.now, &self.policy);
        let next = self.queue.take_successor(place, now, now, policy, |_| true);
        next.next()
    }

    fn leave(&self, keys: &KeySet, turn: Ticket, held: Option<Timestamp>) -> Vec<FollowUp<usize>> {
        let place = place(keys, turn);
        self.queue.leave(place, self.now, held, &self.policy)
    }

    fn apply(&mut self, next: Vec<FollowUp<usize>>) {
        for next in next {
            match next {
                FollowUp::StartTurn { waiter, .. } => match &self.actors[waiter].waits {
                    Some(waits) => self.enter(waiter, waits.ticket),
                    None => self.fault = Some("one that does not wait has the turn"),
                },
                FollowUp::LookAgain { waiter, at } => self.note_look(waiter, Some(at)),
            }
        }
    }

    fn note_look(&mut self, index: usize, at: Option<Timestamp>) {
        match &mut self.actors[index].waits {
            Some(waits) if self.mutant != Mutant::NeverLooksAgain => waits.look_at = at,
            Some(_) => {}
            None => self.fault = Some("one that does not wait looks again"),
        }
    }

    /// Lets a waiter have the lock, with the turn of that ticket.
    fn enter(&mut self, index: usize, turn: Ticket) {
        let Some(Waits { ticket, keys, .. }) = self.actors[index].waits.take() else {
            self.fault = Some("one that does not wait has the lock");
            return;
        };
        if keys.iter().any(|key| self.taken().contains(key)) {
            self.fault = Some("two have one key");
        }
        let is_earlier = |other: &Waits| match self.mutant {
            Mutant::ServesInOrder => other.ticket > ticket,
            _ => other.ticket < ticket,
        };
        if self.is_of_one_key() && self.waiting().iter().any(is_earlier) {
            self.fault = Some("not served in order of arrival");
        }
        if self.is_kept(ticket, &keys) {
            self.fault = Some("has a key that is kept for another");
        }
        self.actors[index].held.push((turn, keys));
    }

    /// Returns whether one of the keys is kept for an earlier waiter than this one.
    fn is_kept(&self, ticket: Ticket, keys: &KeySet) -> bool {
        let other_slices = self.mutant == Mutant::KeepsInOtherSlices;
        if kept_until(self.now).is_some() == other_slices {
            return false;
        }
        let waiting = self.waiting();
        let is_first = |it: &&Waits| {
            let mut others = waiting.iter();
            !others.any(|other| other.ticket < it.ticket && shares(&it.keys, &other.keys))
        };
        let earlier = |it: &&Waits| it.ticket < ticket && it.keys.has_several();
        let mut keepers = waiting.iter().filter(earlier).filter(is_first);
        keepers.any(|it| shares(&it.keys, keys))
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
        let keys = &self.queue.0.lock().keys.locks;
        let by_key: BTreeMap<_, _> = keys.by_key.iter().collect();
        format!("{:?} {by_key:?} {:?}", self.actors, self.now)
    }

    /// Returns what is wrong, if anything.
    fn fault(&self) -> Option<&'static str> {
        let (waiting, taken) = (self.waiting(), self.taken());
        let goes_on = |step: &Step| !matches!(step, Step::GiveUp(_) | Step::NextSlice);
        let could_enter = |it: &Waits| {
            let is_free = it.keys.iter().all(|key| !taken.contains(key));
            let looks = |other: &Waits| other.look_at.is_some() && shares(&it.keys, &other.keys);
            is_free && !self.is_kept(it.ticket, &it.keys) && !waiting.iter().any(looks)
        };
        if self.fault.is_some() {
            self.fault
        } else if !waiting.is_empty() && taken.is_empty() {
            Some("all keys are free, and some wait")
        } else if !waiting.is_empty() && !self.steps().iter().any(goes_on) {
            Some("a deadlock")
        } else if self.queue.status().waiting != waiting.len() {
            Some("the queue is not of those that wait")
        } else if waiting.iter().any(could_enter) {
            Some("waits for keys that are free")
        } else {
            None
        }
    }
}

fn shares(one: &KeySet, other: &KeySet) -> bool {
    one.iter().any(|key| other.iter().any(|it| it == key))
}

/// Returns how many states any order of events leads to, or what is wrong in one of them.
fn explore(
    parts: &'static [Part],
    hands_over: bool,
    mutant: Mutant,
) -> Result<usize, (Vec<Step>, &'static str)> {
    let mut seen = HashSet::new();
    let start = World::new(parts, hands_over, mutant);
    let mut worlds = VecDeque::from([(start, Vec::new())]);
    while let Some((world, path)) = worlds.pop_front() {
        if let Some(fault) = world.fault() {
            return Err((path, fault));
        }
        if !seen.insert(world.state()) {
            continue;
        }
        worlds.extend(world.steps().into_iter().map(|step| {
            let (mut world, mut path) = (world.copy(), path.clone());
            world.take(step);
            path.push(step);
            (world, path)
        }));
    }
    Ok(seen.len())
}

/// Returns the casts, without handover and with it.
fn casts() -> impl Iterator<Item = (&'static [Part], bool)> {
    let casts = [OF_ONE_KEY].into_iter().chain(CASTS);
    casts.flat_map(|cast| [(cast, false), (cast, true)])
}

#[test]
fn every_order_of_events_serves_all() {
    let mut states = 0;
    for (cast, hands_over) in casts() {
        states += explore(cast, hands_over, Mutant::None)
            .unwrap_or_else(|(path, fault)| panic!("{cast:?} {hands_over}: {fault}: {path:?}"));
        println!("{states} states");
    }
    assert!(states > 10_000, "{states}");
}

#[test]
fn every_order_of_events_finds_what_is_done_wrong() {
    for (mutant, fault) in [
        (Mutant::NeverLooksAgain, "waits for keys that are free"),
        (Mutant::ForgetsOthers, "the queue is not of those that wait"),
        (
            Mutant::KeepsInOtherSlices,
            "has a key that is kept for another",
        ),
        (Mutant::ServesInOrder, "not served in order of arrival"),
    ] {
        let found = casts().find_map(|(cast, hands_over)| {
            let (path, found) = explore(cast, hands_over, mutant).err()?;
            (found == fault).then_some(path)
        });
        println!("{mutant:?}: {fault}: {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}
