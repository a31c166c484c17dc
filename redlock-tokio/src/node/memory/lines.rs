use std::{collections::BTreeMap, sync::Arc};

use redlock_core::Timestamp;

use super::store::FEWEST;
use crate::{
    Key,
    node::{FreedNotifier, LineAction, LineAnswer, LineRequest, Member},
};

/// The lines of processes that wait for keys of a node.
#[derive(Default)]
pub(super) struct Lines {
    by_key: BTreeMap<Key, Line>,
    /// When this many lines exist, the expired ones are removed.
    sweep_at: usize,
}

#[derive(Default)]
struct Line(Vec<Place>);

struct Place {
    member: Member,
    client_name: Option<Arc<str>>,
    notifier: Option<FreedNotifier>,
    expires_at: Timestamp,
}

impl Lines {
    /// Carries out a request of the session with this notifier. Adds whom to call once the store is unlocked.
    pub(super) fn execute(
        &mut self,
        now: Timestamp,
        request: &LineRequest,
        by: Option<&FreedNotifier>,
        called: &mut Vec<(FreedNotifier, Key)>,
    ) -> LineAnswer {
        let LineRequest {
            key,
            action,
            client_name,
        } = request;
        self.sweep(now);
        let mut call = |next: &Place| {
            let next = next.notifier.clone().map(|next| (next, key.clone()));
            called.extend(next);
        };
        match *action {
            LineAction::Join {
                only_behind_others: true,
                ..
            } if !self.by_key.contains_key(key) => LineAnswer::Waiting(0),
            LineAction::Join {
                member,
                active,
                evicts,
                ..
            } => {
                let line = self.by_key.entry(key.clone()).or_default();
                let own = Place {
                    member,
                    client_name: client_name.clone(),
                    notifier: by.cloned(),
                    expires_at: now.saturating_add(LineRequest::LIFETIME),
                };
                let first = line.0.first().map(|it| it.member);
                let evicted = evicts.filter(|it| first == Some(*it));
                let before = line.0.len();
                line.0
                    .retain(|it| it.member == member || it.is_kept(now, evicted));
                if line.0.len() < before {
                    line.0.iter().take(active as usize).for_each(&mut call);
                }
                let ahead = line.place_of(member).unwrap_or(line.0.len());
                line.0.splice(ahead..(ahead + 1).min(line.0.len()), [own]);
                LineAnswer::Standing {
                    ahead: ahead as u32,
                    first: line.0[0].member,
                    is_called: by.is_some(),
                }
            }
            LineAction::Leave { member, active } => {
                if let Some(line) = self.by_key.get_mut(key)
                    && let Some(place) = line.place_of(member)
                {
                    line.0.remove(place);
                    line.moved_up(active, place).for_each(&mut call);
                    if line.0.is_empty() {
                        self.by_key.remove(key);
                    }
                }
                LineAnswer::Left
            }
            LineAction::Count => {
                LineAnswer::Waiting(self.by_key.get(key).map_or(0, |line| line.waiting(now)))
            }
        }
    }

    /// Returns the notifiers of the processes that stand in the lines.
    pub(super) fn into_notifiers(self) -> impl Iterator<Item = FreedNotifier> {
        let places = self.by_key.into_values().flat_map(|line| line.0);
        places.filter_map(|it| it.notifier)
    }

    pub(super) fn client_names(
        &self,
        now: Timestamp,
        key: &Key,
    ) -> impl Iterator<Item = Option<Arc<str>>> {
        let places = self.by_key.get(key).into_iter().flat_map(|line| &line.0);
        let alive = places.filter(move |it| now < it.expires_at);
        alive.map(|it| it.client_name.clone())
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.by_key.len() >= self.sweep_at.max(FEWEST) {
            self.by_key.retain(|_, line| line.waiting(now) > 0);
            self.sweep_at = self.by_key.len() * 2;
        }
    }
}

impl Line {
    fn place_of(&self, member: Member) -> Option<usize> {
        self.0.iter().position(|it| it.member == member)
    }

    fn waiting(&self, now: Timestamp) -> u32 {
        self.0.iter().filter(|it| now < it.expires_at).count() as u32
    }

    /// Returns the first, and the last of the first `active`, if they have moved up because one has left this place.
    fn moved_up(&self, active: u32, left: usize) -> impl Iterator<Item = &Place> {
        let last = active as usize - 1;
        let ranks = [Some(0), (last > 0).then_some(last)].into_iter().flatten();
        let moved = ranks.filter(move |rank| left <= *rank);
        moved.filter_map(|rank| self.0.get(rank))
    }
}

impl Place {
    fn is_kept(&self, now: Timestamp, evicted: Option<Member>) -> bool {
        now < self.expires_at && Some(self.member) != evicted
    }
}
