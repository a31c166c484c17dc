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
    places: Vec<(Member, ConnectionId)>,
    /// In milliseconds of the server's clock.
    expires_at: u64,
}

impl Server {
    /// Carries out a request about a line. Returns the connection of the process that is called, if one is.
    pub(crate) fn execute_in_line(
        &mut self,
        at: u64,
        from: ConnectionId,
        request: &LineRequest,
    ) -> (LineAnswer, Option<ConnectionId>) {
        let now = self.millis(at);
        let line = self.lines.0.entry(request.key.clone()).or_default();
        if line.expires_at <= now {
            line.places.clear();
        }
        let mut called = None;
        let answer = match request.action {
            LineAction::Join {
                member,
                active,
                evicts,
            } => {
                if evicts.is_some() && line.places.first().map(|it| it.0) == evicts {
                    line.places.remove(0);
                    called = line.last_active(active);
                }
                let place = line.place_of(member).unwrap_or(line.places.len());
                match line.places.get_mut(place) {
                    Some(own) => own.1 = from,
                    None => line.places.push((member, from)),
                }
                line.expires_at = now + LineRequest::LIFETIME.as_millis() as u64;
                LineAnswer::Standing {
                    ahead: place as u32,
                    first: line.places[0].0,
                    is_called: true,
                }
            }
            LineAction::Leave { member, active } => {
                if let Some(place) = line.place_of(member) {
                    line.places.remove(place);
                    called = line.last_active(active);
                    called = called.filter(|_| place < active as usize);
                }
                LineAnswer::Left
            }
            LineAction::Count => LineAnswer::Waiting(line.places.len() as u32),
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

    /// Returns the connection of the last of those that may try.
    fn last_active(&self, active: u32) -> Option<ConnectionId> {
        Some(self.places.get(active.checked_sub(1)? as usize)?.1)
    }
}
