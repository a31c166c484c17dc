use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Weak},
};

use redlock_core::Timestamp;

use super::store::FEWEST;
use crate::{
    Key,
    node::{FreedNotifier, LineAction, LineAnswer, LineRequest, Member, Standing},
};

/// The lines of processes that wait for keys of a node, and which of them are alive.
#[derive(Default)]
pub(super) struct Lines {
    by_name: BTreeMap<Name, Line>,
    /// The members that are alive, by their numbers.
    alive: BTreeMap<u64, Life>,
    /// The last second of the clock in which a member was asked, and how many such seconds there were.
    counted: (u64, u64),
    /// How many lives there were.
    lives: u64,
    /// The lines whose first ones are to be called, how many of each may try, and whether one of them has the lock.
    to_call: Vec<(Name, u32, bool)>,
    /// When this many lines exist, the expired ones are removed.
    sweep_at: usize,
}

/// A key, whether the line is that of processes that wait for several keys, and whether it is that of processes that are not
/// called.
type Name = (Key, bool, bool);

struct Line {
    places: Vec<Place>,
    expires_at: Timestamp,
}

struct Place {
    number: u64,
    member: Member,
    client_name: Option<Arc<str>>,
    active: u32,
}

struct Life {
    number: u64,
    /// The count at its last beat.
    beat: u64,
    hears: Option<Listener>,
}

/// A session that can be called. Nobody hears a call once it is dropped.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) notifier: FreedNotifier,
    pub(super) session: Weak<()>,
}

/// Those who are called once the store is unlocked, and whether the lock is taken.
pub(super) type Called = Vec<(FreedNotifier, Key, bool)>;

impl Lines {
    /// Carries out a request of a session, and adds whom to call.
    pub(super) fn execute(
        &mut self,
        now: Timestamp,
        request: &LineRequest,
        by: Option<Listener>,
        called: &mut Called,
    ) -> LineAnswer {
        self.sweep(now);
        let is_called = by.is_some();
        let name = (request.key.clone(), request.of_several, !is_called);
        let in_front = (request.key.clone(), false, false);
        let (name, action) = match request.action {
            LineAction::Keep { member, active } => {
                let join = LineAction::Join {
                    member,
                    active,
                    number: Some(0),
                    only_behind_others: false,
                };
                (in_front, join)
            }
            LineAction::LetGo { member, active } => {
                let is_taken = false;
                (
                    in_front,
                    LineAction::Leave {
                        member,
                        active,
                        is_taken,
                    },
                )
            }
            action => (name, action),
        };
        match action {
            LineAction::Join {
                member,
                active,
                number,
                only_behind_others,
            } => {
                self.remove_dead_heads(&name);
                if only_behind_others && !self.by_name.contains_key(&name) {
                    return LineAnswer::Waiting(0);
                }
                let life = self.beat(now, member, by);
                self.leave_sibling(&name, member);
                let expires_at = now.saturating_add(LineRequest::LIFETIME);
                let line = self.by_name.entry(name.clone());
                let line = line.or_insert_with(|| Line {
                    places: Vec::new(),
                    expires_at,
                });
                line.expires_at = expires_at;
                if line.place_of(member).is_none() {
                    line.take_place(Place {
                        number: number.unwrap_or_else(|| line.next_number(now)),
                        member,
                        client_name: request.client_name.clone(),
                        active,
                    });
                }
                self.call_all(called);
                let line = &self.by_name[&name];
                let ahead = line.place_of(member).unwrap_or_default();
                LineAnswer::Standing(Standing {
                    ahead: ahead as u32,
                    number: line.places[ahead].number,
                    life,
                    is_called,
                })
            }
            LineAction::Leave {
                member,
                active,
                is_taken,
            } => {
                self.leave(&name, member);
                self.to_call.push((name, active, is_taken));
                self.call_all(called);
                LineAnswer::Done
            }
            LineAction::Call { active } => {
                self.to_call.push((name, active, false));
                self.call_all(called);
                LineAnswer::Done
            }
            LineAction::Beat { member, leaves_all } => {
                if leaves_all {
                    self.bury(member);
                } else if self.has_places(member) {
                    self.beat(now, member, by);
                }
                self.call_all(called);
                let life = self.alive.get(&member.0).map(|it| it.number);
                LineAnswer::Alive {
                    life: life.filter(|_| self.has_places(member)),
                    has_more: false,
                }
            }
            LineAction::Keep { .. } | LineAction::LetGo { .. } => LineAnswer::Done,
            LineAction::Count => {
                let names = Self::names_of(&request.key);
                let waiting = names.map(|name| {
                    self.remove_dead_heads(&name);
                    self.by_name.get(&name).map_or(0, |line| line.places.len())
                });
                LineAnswer::Waiting(waiting.sum::<usize>() as u32)
            }
        }
    }

    /// Forgets all of them. Returns the notifiers of those that stood in a line.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = FreedNotifier> + use<> {
        let lines = Self {
            lives: self.lives,
            ..Self::default()
        };
        let alive = mem::replace(self, lines).alive.into_values();
        alive.filter_map(|it| it.hears.map(|it| it.notifier))
    }

    pub(super) fn client_names(&self, key: &Key) -> impl Iterator<Item = Option<Arc<str>>> {
        let lines = Self::names_of(key).filter_map(|name| self.by_name.get(&name));
        let places = lines.flat_map(|line| &line.places);
        places.map(|it| it.client_name.clone())
    }

    fn names_of(key: &Key) -> impl Iterator<Item = Name> + use<> {
        let key = key.clone();
        let kinds = [(false, false), (false, true), (true, false), (true, true)];
        kinds.into_iter().map(move |(a, b)| (key.clone(), a, b))
    }

    fn has_places(&self, member: Member) -> bool {
        let mut lines = self.by_name.values();
        lines.any(|line| line.place_of(member).is_some())
    }

    /// Notes that a member is alive, and removes those that have not said so for too long. Returns the number of its life.
    fn beat(&mut self, now: Timestamp, member: Member, hears: Option<Listener>) -> u64 {
        let second = now.as_nanos() / 1_000_000_000;
        let (last, count) = &mut self.counted;
        *count += u64::from(*last != second);
        *last = second;
        let count = *count;
        let life = self.alive.entry(member.0).or_insert_with(|| {
            self.lives += 1;
            Life {
                number: self.lives,
                beat: count,
                hears: None,
            }
        });
        (life.beat, life.hears) = (count, hears);
        let number = life.number;
        let is_dead = |it: &Life| it.beat + LineRequest::DEAD_AFTER <= count;
        let dead = self.alive.iter().filter(|(_, it)| is_dead(it));
        let dead: Vec<_> = dead.map(|(member, _)| Member(*member)).collect();
        dead.into_iter().for_each(|it| self.bury(it));
        number
    }

    fn bury(&mut self, member: Member) {
        self.alive.remove(&member.0);
        let names: Vec<_> = self.by_name.keys().cloned().collect();
        for name in names {
            if let Some(place) = self.leave(&name, member) {
                self.to_call.push((name, place.active, false));
            }
        }
    }

    fn leave(&mut self, name: &Name, member: Member) -> Option<Place> {
        let line = self.by_name.get_mut(name)?;
        let place = line.place_of(member)?;
        let left = line.places.remove(place);
        if line.places.is_empty() {
            self.by_name.remove(name);
        }
        Some(left)
    }

    /// Gives up the place of a member that is called now and was not before, or the other way round. A place with number zero
    /// only [keeps](LineAction::Keep) others waiting.
    fn leave_sibling(&mut self, (key, of_several, is_uncalled): &Name, member: Member) {
        let sibling = (key.clone(), *of_several, !is_uncalled);
        let places = self.by_name.get(&sibling).into_iter();
        let mut places = places.flat_map(|it| &it.places);
        if places.any(|it| it.member == member && it.number > 0) {
            self.leave(&sibling, member);
        }
    }

    fn remove_dead_heads(&mut self, name: &Name) {
        while let Some(first) = self.place(name, 0)
            && !self.alive.contains_key(&first.0)
        {
            self.leave(name, first);
        }
    }

    fn call_all(&mut self, called: &mut Called) {
        while let Some((name, active, is_taken)) = self.to_call.pop() {
            self.call(&name, active as usize, is_taken, called);
        }
    }

    /// Calls the first, and the last of the first `active`. If nobody hears it, the line is to be called again.
    fn call(&mut self, name: &Name, active: usize, is_taken: bool, called: &mut Called) {
        let mut rank = 0;
        while rank < active {
            let Some(member) = self.place(name, rank) else {
                return;
            };
            let Some(life) = self.alive.get(&member.0) else {
                self.leave(name, member);
                continue;
            };
            if let Some(Listener { notifier, session }) = &life.hears {
                if session.strong_count() == 0 {
                    return self.bury(member);
                }
                called.push((notifier.clone(), name.0.clone(), is_taken));
            }
            rank = if rank == 0 { active.max(2) - 1 } else { active };
        }
    }

    /// Returns who stands behind so many others.
    fn place(&self, name: &Name, ahead: usize) -> Option<Member> {
        let line = self.by_name.get(name)?;
        line.places.get(ahead).map(|it| it.member)
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.by_name.len() >= self.sweep_at.max(FEWEST) {
            self.by_name.retain(|_, line| now < line.expires_at);
            self.sweep_at = self.by_name.len() * 2;
        }
    }
}

impl Line {
    fn place_of(&self, member: Member) -> Option<usize> {
        self.places.iter().position(|it| it.member == member)
    }

    /// Returns the number of a place at the end.
    fn next_number(&self, now: Timestamp) -> u64 {
        let last = self.places.last().map_or(0, |it| it.number);
        (last + 1).max(now.as_nanos() / 1000)
    }

    fn take_place(&mut self, place: Place) {
        let ahead = |it: &Place| it.number <= place.number;
        let at = self.places.partition_point(ahead);
        self.places.insert(at, place);
    }
}
