//! A queue, the requests in it, and the rules that hold for them.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use Role::{Adopter, Lock, LoneReader, Reader, Writer};

use super::{super::*, Cast, OF_ONE_KEY};
use crate::engine::queue::kept_keys::{SLICE, kept_until};

/// How often another slice of time begins.
const SLICES: usize = 3;

/// A fault on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    /// The queue is not asked again when a slice is over.
    NeverLooksAgain,
    /// The waiters that could have a turn when another gives up do not get it.
    ForgetsOthers,
    /// Keys are expected to be kept in the other slices.
    KeepsInOtherSlices,
    /// The waiters for one key are expected to be served in the reverse order.
    ServesInOrder,
    /// Readers come in as if they had adopted the lock.
    ReadersWaitForNobody,
    /// Readers join others although a writer or a lock came before them.
    ReadersJoinAnybody,
    /// Waiting readers do not join those that hold the lock.
    LetsNobodyIn,
    /// The queue does not know that others hold the lock.
    HidesHolds,
    /// The last reader does not leave the queue.
    KeepsTurn,
    /// The queue does not know that a writer has become a reader.
    HidesDowngrade,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Locks its next set of keys.
    Lock(usize),
    /// Likewise, with an earlier arrival than all others.
    LockLate(usize),
    /// Gets the lock for which it has the turn.
    Acquire(usize),
    /// Becomes a reader.
    Downgrade(usize),
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
    /// Those that have the turns. After a handover, or with other readers, it is the request of another actor.
    held: Vec<Request>,
    waits: Option<Request>,
    is_gone: bool,
}

#[derive(Clone, Debug)]
struct Request {
    by: usize,
    role: Role,
    arrival: Arrival,
    keys: KeySet,
    look_at: Option<Timestamp>,
    /// The queue does not tell a lock that is held from one that the nodes are asked for.
    is_held: bool,
    reads: bool,
}

impl Request {
    fn place(&self) -> QueuePlace<'_> {
        QueuePlace {
            keys: &self.keys,
            role: self.role,
            arrival: self.arrival,
        }
    }
}

pub(super) struct World {
    queue: Queue<usize>,
    cast: Cast,
    actors: Vec<Actor>,
    now: Timestamp,
    slices: usize,
    arrivals: usize,
    /// Whether one came before all others, and joined after some of them.
    is_one_late: bool,
    policy: QueuePolicy,
    mutant: Mutant,
    pub(super) fault: Option<&'static str>,
}

impl World {
    pub(super) fn new(cast: Cast, hands_over: bool, mutant: Mutant) -> Self {
        let streak = if hands_over {
            Duration::MAX
        } else {
            Duration::ZERO
        };
        Self {
            queue: queue(),
            cast,
            actors: vec![Actor::default(); cast.0.len()],
            now: at(0),
            slices: 0,
            arrivals: 0,
            is_one_late: false,
            policy: QueuePolicy { streak, ..ROOMY },
            mutant,
            fault: None,
        }
    }

    pub(super) fn copy(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            actors: self.actors.clone(),
            ..*self
        }
    }

    fn is_of_one_key(&self) -> bool {
        OF_ONE_KEY.contains(&self.cast)
    }

    pub(super) fn steps(&self) -> Vec<Step> {
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
                None if actor.held.len() < self.cast.1[index].len() => {
                    steps.push(Step::Lock(index));
                    if self.is_of_one_key() && !self.is_one_late {
                        steps.push(Step::LockLate(index));
                    }
                }
                None => {
                    let turn = actor.held.last().expect("it has locked all");
                    let is_alone = turn.is_held && !turn.reads;
                    let may_acquire = !turn.is_held && self.is_granted(turn);
                    let may_fail = !turn.is_held || turn.role == Lock;
                    let more = self.is_of_one_key();
                    let possible = [
                        (turn.is_held, Step::Release(index)),
                        (may_acquire, Step::Acquire(index)),
                        (is_alone && turn.role == Writer, Step::Downgrade(index)),
                        (more && is_alone, Step::ReleaseToNobody(index)),
                        (more && may_fail, Step::Fail(index)),
                    ];
                    steps.extend(possible.iter().filter_map(|(may, it)| may.then_some(*it)));
                }
            }
            steps
        };
        let steps = self.actors.iter().enumerate().flat_map(of);
        // Time matters only to those that wait for several keys.
        let waits_for_several = self.waiting().iter().any(|it| it.keys.has_several());
        let changes = self.slices < SLICES && waits_for_several;
        steps.chain(changes.then_some(Step::NextSlice)).collect()
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Lock(index) => {
                self.arrivals += 1;
                self.lock(index, self.arrivals);
            }
            Step::LockLate(index) => {
                self.is_one_late = true;
                self.lock(index, 0);
            }
            Step::Acquire(index) => {
                self.actors[index].held[0].is_held = true;
                self.tell_others(index);
            }
            Step::Downgrade(index) => {
                let turn = &mut self.actors[index].held[0];
                turn.reads = true;
                if self.mutant != Mutant::HidesDowngrade {
                    self.queue.note_downgrade(turn.keys.first(), turn.arrival);
                }
                self.tell_others(index);
            }
            Step::Release(index) => self.end(index, Self::release),
            Step::ReleaseToNobody(index) => {
                let turn = self.actors[index].held[0].clone();
                let next = || self.successor(&turn);
                for successor in std::iter::from_fn(next).collect::<Vec<_>>() {
                    // The queue has removed it already.
                    self.actors[successor].is_gone = true;
                    if let Some(waits) = self.actors[successor].waits.take() {
                        assert_eq!(self.leave(&waits, None), []);
                    }
                }
                self.take(Step::Release(index));
            }
            Step::Fail(index) => self.end(index, |world, turn| {
                let next = world.leave(&turn, None);
                world.apply(next);
            }),
            Step::GiveUp(index) => {
                self.actors[index].is_gone = true;
                if let Some(waits) = self.actors[index].waits.take() {
                    let next = self.leave(&waits, None);
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
                    let next = self.queue.advance(Lock, &keys, self.now, Pace::ALL);
                    self.apply(next);
                }
            }
            Step::NextSlice => {
                self.slices += 1;
                self.now = self.now.saturating_add(SLICE);
            }
        }
    }

    /// Ends each of its turns.
    fn end(&mut self, index: usize, end: fn(&mut Self, Request)) {
        self.actors[index].is_gone = true;
        while let Some(turn) = self.actors[index].held.pop() {
            end(self, turn);
        }
    }

    fn lock(&mut self, index: usize, number: usize) {
        let (role, part) = (self.cast.0[index], self.cast.1[index]);
        let request = Request {
            by: index,
            role,
            arrival: arrival(number),
            keys: keys(part[self.actors[index].held.len()]),
            look_at: None,
            is_held: role == Lock,
            reads: role.is_reader(),
        };
        self.actors[index].waits = Some(request.clone());
        let open = self.queue.open_turn(request.keys.first());
        let open = |it: &&Request| match self.mutant {
            Mutant::ReadersJoinAnybody => true,
            _ => open == Some(it.by),
        };
        let joins = |it: &&Request| role == Reader && self.lets_in(it);
        let joined = self.turns().filter(open).find(joins).cloned();
        if let Some(turn) = joined {
            return self.enter(index, Some(turn));
        }
        let mut place = request.place();
        if role == Reader && self.mutant == Mutant::ReadersWaitForNobody {
            place.role = Adopter;
        }
        let joined = self.queue.join(place, self.now, &self.policy, &index);
        match joined.expect("there is room") {
            JoinOutcome::Turn { .. } => {
                let last = self.turns().max_by_key(|it| it.arrival);
                let is_first = self.waiting().len() == 1;
                if role == Reader && is_first && last.is_some_and(|it| self.lets_in(it)) {
                    self.fault = Some("a reader asks where it could join");
                }
                self.enter(index, None);
            }
            JoinOutcome::Waiting { look_at } => {
                let waiting = self.waiting();
                let mut before = waiting.iter().filter(|it| self.overtakes(&request, it));
                if role == LoneReader && self.has_room(&request) && before.next().is_none() {
                    self.fault = Some("waits for keys that are free");
                }
                self.note_look(index, look_at);
            }
        }
    }

    /// Lets waiting readers join those that hold the lock by this turn, and others ask beside them.
    fn tell_others(&mut self, index: usize) {
        let turn = &self.actors[index].held[0].clone();
        let key = turn.keys.first();
        if self.lets_in(turn) && self.mutant != Mutant::LetsNobodyIn {
            let queue = &mut self.queue;
            let next = || queue.take_next_to_join(key, turn.arrival, |_| true);
            for joined in std::iter::from_fn(next).collect::<Vec<_>>() {
                self.enter(joined, Some(turn.clone()));
            }
        }
        let waiting = self.waiting();
        let first = waiting.iter().min_by_key(|it| it.arrival);
        let is_reader = first.is_some_and(|it| it.role == Reader && self.could_begin(it));
        if self.lets_in(turn) && is_reader {
            self.fault = Some("a reader asks where it could join");
        }
        if self.mutant != Mutant::HidesHolds {
            let next = self.queue.note_hold(turn.place(), self.now);
            self.apply(next);
        }
    }

    /// Returns whether readers may share this lock.
    fn lets_in(&self, turn: &Request) -> bool {
        turn.is_held && turn.reads && turn.role != LoneReader && !self.policy.streak.is_zero()
    }

    fn release(&mut self, turn: Request) {
        if self.turns().any(|it| it.arrival == turn.arrival) {
            return;
        }
        if !turn.keys.has_several()
            && !turn.reads
            && let Some(successor) = self.successor(&turn)
        {
            return self.enter(successor, Some(turn));
        }
        if !(turn.reads && self.mutant == Mutant::KeepsTurn) {
            let next = self.leave(&turn, Some(self.now));
            self.apply(next);
        }
    }

    fn successor(&mut self, turn: &Request) -> Option<usize> {
        let (now, policy) = (self.now, &self.policy);
        let place = turn.place();
        let next = self.queue.take_successor(place, now, now, policy, |_| true);
        next.next()
    }

    fn leave(&mut self, request: &Request, held: Option<Timestamp>) -> Vec<FollowUp<usize>> {
        let place = request.place();
        self.queue.leave(place, self.now, held, &self.policy)
    }

    fn apply(&mut self, next: Vec<FollowUp<usize>>) {
        for next in next {
            match next {
                FollowUp::StartTurn { waiter, .. } => self.enter(waiter, None),
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

    /// Lets a waiter have a turn, or share or take over the lock of this one.
    fn enter(&mut self, index: usize, turn: Option<Request>) {
        let Some(request) = self.actors[index].waits.take() else {
            self.fault = Some("one that does not wait has the turn");
            return;
        };
        let may_enter = match &turn {
            None => self.has_room(&request),
            Some(turn) => {
                let role = if turn.reads { Reader } else { turn.role };
                let no_writer = self.beside(turn).all(|it| it.role != Writer || it.reads);
                turn.is_held && request.role == role && no_writer
            }
        };
        if !may_enter {
            self.fault = Some("two have one key");
        }
        if self.waiting().iter().any(|it| self.overtakes(&request, it)) {
            self.fault = Some("not served in order of arrival");
        }
        if self.is_kept(&request) {
            self.fault = Some("has a key that is kept for another");
        }
        self.actors[index].held.push(turn.unwrap_or(request));
    }

    /// Returns whether it begins before another one that waits, and should not.
    fn overtakes(&self, request: &Request, other: &Request) -> bool {
        let is_earlier = match self.mutant {
            Mutant::ServesInOrder => other.arrival > request.arrival,
            _ => other.arrival < request.arrival,
        };
        let passes = match request.role {
            Adopter => true,
            LoneReader => other.role.is_reader(),
            _ => other.keys.has_several(),
        };
        is_earlier && shares(&request.keys, &other.keys) && !passes
    }

    /// Returns whether it may have a turn beside those that have one.
    fn has_room(&self, request: &Request) -> bool {
        let mut beside = self.beside(request);
        match request.role {
            Adopter => true,
            Reader | Writer => beside.all(|it| it.is_held && it.reads),
            LoneReader => beside.all(|it| it.reads),
            _ => beside.next().is_none(),
        }
    }

    /// Returns whether the nodes grant what it has the turn for.
    fn is_granted(&self, turn: &Request) -> bool {
        let mut held = self.beside(turn).filter(|it| it.is_held);
        held.all(|it| it.reads && turn.reads)
    }

    /// Returns whether a waiter could have a turn, and nothing will give it the turn.
    fn could_begin(&self, request: &Request) -> bool {
        let waiting = self.waiting();
        let of_key = || waiting.iter().filter(|it| shares(&it.keys, &request.keys));
        let is_before = |it: &Request| it.arrival < request.arrival && !it.keys.has_several();
        self.has_room(request)
            && !self.is_kept(request)
            && !of_key().any(|it| it.look_at.is_some() || is_before(it))
    }

    /// Returns whether one of the keys is kept for an earlier waiter than this one.
    fn is_kept(&self, request: &Request) -> bool {
        let other_slices = self.mutant == Mutant::KeepsInOtherSlices;
        if request.role == Adopter || kept_until(self.now).is_some() == other_slices {
            return false;
        }
        let waiting = self.waiting();
        let is_first = |it: &&Request| {
            let mut others = waiting.iter();
            !others.any(|other| other.arrival < it.arrival && shares(&it.keys, &other.keys))
        };
        let earlier = |it: &&Request| it.arrival < request.arrival && it.keys.has_several();
        let mut keepers = waiting.iter().filter(earlier).filter(is_first);
        keepers.any(|it| shares(&it.keys, &request.keys))
    }

    fn waiting(&self) -> Vec<Request> {
        let waiting = self.actors.iter().filter_map(|it| it.waits.clone());
        waiting.collect()
    }

    fn turns(&self) -> impl Iterator<Item = &Request> {
        self.actors.iter().flat_map(|it| &it.held)
    }

    /// Returns the turns of others for one of these keys.
    fn beside(&self, request: &Request) -> impl Iterator<Item = &Request> {
        let is_beside =
            |it: &&Request| it.arrival != request.arrival && shares(&it.keys, &request.keys);
        self.turns().filter(is_beside)
    }

    /// Returns a hash of all that may matter for the next steps.
    pub(super) fn state(&self) -> u64 {
        let keys = &self.queue.keys.locks;
        let by_key: BTreeMap<_, _> = keys.by_key.iter().collect();
        let state = format!("{:?} {by_key:?} {:?}", self.actors, self.now);
        BuildHasherDefault::<DefaultHasher>::default().hash_one(state)
    }

    /// Returns what is wrong, if anything.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let waiting = self.waiting();
        let goes_on =
            |step: &Step| !matches!(step, Step::GiveUp(_) | Step::Fail(_) | Step::NextSlice);
        let keys: HashSet<_> = waiting
            .iter()
            .chain(self.turns())
            .flat_map(|it| it.keys.iter())
            .collect();
        if self.fault.is_some() {
            self.fault
        } else if !waiting.is_empty() && self.turns().next().is_none() {
            Some("all keys are free, and some wait")
        } else if !waiting.is_empty() && !self.steps().iter().any(goes_on) {
            Some("a deadlock")
        } else if size(&self.queue) != (keys.len(), waiting.len()) {
            Some("the queue is not of those that wait")
        } else if waiting.iter().any(|it| self.could_begin(it)) {
            Some("waits for keys that are free")
        } else {
            None
        }
    }
}

fn shares(one: &KeySet, other: &KeySet) -> bool {
    one.iter().any(|key| other.iter().any(|it| it == key))
}
