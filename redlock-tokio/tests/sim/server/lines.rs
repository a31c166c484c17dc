//! The lines of the processes that wait for a key.

use std::collections::BTreeMap;

use redlock_tokio::{
    Key,
    node::{LineAction, LineAnswer, LineRequest, Member},
};

use super::Server;
use crate::message::ConnectionId;

#[derive(Default)]
pub(super) struct Lines(BTreeMap<Key, Line>);

#[derive(Default)]
struct Line {
    /// With the time at which the place expires, in milliseconds of the server's clock.
    places: Vec<(Member, ConnectionId, u64)>,
}

impl Server {
    /// Carries out a request about a line. Returns the connections of the processes that are called.
    pub(crate) fn execute_in_line(
        &mut self,
        at: u64,
        from: ConnectionId,
        is_called: bool,
        request: &LineRequest,
    ) -> (LineAnswer, Vec<ConnectionId>) {
        let now = self.millis(at);
        let line = self.lines.0.entry(request.key.clone()).or_default();
        let mut called = Vec::new();
        let answer = match request.action {
            LineAction::Join {
                only_behind_others: true,
                ..
            } if line.places.is_empty() => LineAnswer::Waiting(0),
            LineAction::Join {
                member,
                active,
                evicts,
                ..
            } => {
                let first = line.places.first().map(|it| it.0);
                let evicted = evicts.filter(|it| first == Some(*it));
                let before = line.places.len();
                line.places.retain(|&(it, _, expires_at)| {
                    it == member || (now < expires_at && Some(it) != evicted)
                });
                if line.places.len() < before {
                    called = line.called(0..active as usize);
                }
                let place = line.place_of(member).unwrap_or(line.places.len());
                let expires_at = now + LineRequest::LIFETIME.as_millis() as u64;
                let end = (place + 1).min(line.places.len());
                let own = (member, from, expires_at);
                line.places.splice(place..end, [own]);
                LineAnswer::Standing {
                    ahead: place as u32,
                    first: line.places[0].0,
                    is_called,
                }
            }
            LineAction::Leave { member, active } => {
                if let Some(place) = line.place_of(member) {
                    line.places.remove(place);
                    // The first, and the last of those that may try.
                    let last = active as usize - 1;
                    let ranks = if last == 0 { vec![0] } else { vec![0, last] };
                    called = line.called(ranks.into_iter().filter(|rank| place <= *rank));
                }
                LineAnswer::Left
            }
            LineAction::Count => {
                let alive = line.places.iter().filter(|it| now < it.2);
                LineAnswer::Waiting(alive.count() as u32)
            }
        };
        (answer, called)
    }
}

impl Lines {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Line {
    fn place_of(&self, member: Member) -> Option<usize> {
        self.places.iter().position(|it| it.0 == member)
    }

    /// Returns the connections of the processes at these places.
    fn called(&self, places: impl Iterator<Item = usize>) -> Vec<ConnectionId> {
        let places = places.filter_map(|place| self.places.get(place));
        places.map(|it| it.1).collect()
    }
}
