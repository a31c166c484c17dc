use std::collections::HashMap;

use redlock_core::Timestamp;

use crate::{
    Key,
    node::{FreedNotifier, LineAction, LineAnswer, LineRequest, Member},
};

/// The lines of processes that wait for keys of a node.
#[derive(Default)]
pub(super) struct Lines {
    by_key: HashMap<Key, Line>,
    /// When this many lines exist, the expired ones are removed.
    sweep_at: usize,
}

struct Line {
    places: Vec<(Member, Option<FreedNotifier>)>,
    expires_at: Timestamp,
}

/// Fewer lines than this are not swept.
const FEWEST: usize = 64;

impl Lines {
    /// Carries out a request of the session with this notifier. Adds whom to call once the store is unlocked.
    pub(super) fn execute(
        &mut self,
        now: Timestamp,
        request: &LineRequest,
        by: Option<&FreedNotifier>,
        called: &mut Vec<(FreedNotifier, Key)>,
    ) -> LineAnswer {
        let LineRequest { key, action } = request;
        self.sweep(now);
        let mut call = |next: Option<FreedNotifier>| {
            called.extend(next.map(|next| (next, key.clone())));
        };
        match *action {
            LineAction::Join {
                member,
                active,
                evicts,
            } => {
                let line = self.by_key.entry(key.clone()).or_insert_with(Line::new);
                if line.expires_at <= now {
                    line.places.clear();
                }
                if evicts.is_some() && line.places.first().map(|(it, _)| *it) == evicts {
                    line.places.remove(0);
                    call(line.last_active(active).filter(|it| Some(it) != by));
                }
                let place = line.place_of(member);
                let ahead = place.unwrap_or(line.places.len());
                line.places.splice(
                    ahead..(ahead + 1).min(line.places.len()),
                    [(member, by.cloned())],
                );
                line.expires_at = now.saturating_add(LineRequest::LIFETIME);
                LineAnswer::Standing {
                    ahead: ahead as u32,
                    first: line.places[0].0,
                    is_called: by.is_some(),
                }
            }
            LineAction::Leave { member, active } => {
                if let Some(line) = self.by_key.get_mut(key)
                    && let Some(place) = line.place_of(member)
                {
                    line.places.remove(place);
                    if place < active as usize {
                        call(line.last_active(active));
                    }
                    if line.places.is_empty() {
                        self.by_key.remove(key);
                    }
                }
                LineAnswer::Left
            }
            LineAction::Count => {
                let line = self.by_key.get(key).filter(|line| now < line.expires_at);
                LineAnswer::Waiting(line.map_or(0, |line| line.places.len() as u32))
            }
        }
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.by_key.len() >= self.sweep_at.max(FEWEST) {
            self.by_key.retain(|_, line| now < line.expires_at);
            self.sweep_at = self.by_key.len() * 2;
        }
    }
}

impl Line {
    fn new() -> Self {
        Self {
            places: Vec::new(),
            expires_at: Timestamp::ZERO,
        }
    }

    fn place_of(&self, member: Member) -> Option<usize> {
        self.places.iter().position(|(it, _)| *it == member)
    }

    /// Returns the last of those that may try.
    fn last_active(&self, active: u32) -> Option<FreedNotifier> {
        let (_, notifier) = self.places.get((active as usize).checked_sub(1)?)?;
        notifier.clone()
    }
}
