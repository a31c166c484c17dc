//! Looks for leftover keys: keys that a server has although their process has released them, and could reach the server.
//!
//! A process notes each release that it owes to a server, and sends it again four times a second for as long as the key
//! may live. So a key is gone soon after the release, if the server answers in time and refuses nothing.

use std::collections::HashMap;

use redlock_tokio::{Operation, Token};

use super::{Connection, Network, serving::LATE};
use crate::{
    clock::MILLI,
    message::{ConnectionId, Request},
    requests::ServiceId,
    seen::Seen,
    server::Owned,
    trace::Seconds,
    violation::Violation,
};

/// How long it takes at most until a server has got a release that it is owed: two pauses of a quarter of a second
/// between deliveries, a round trip after each, and what the slowest clock adds.
const DELIVERY: u64 = 700 * MILLI;

/// From when on a release must have been sent a second time.
const AGAIN: u64 = 200 * MILLI;

/// What processes have asked for and released. The order of the map is never looked at.
#[derive(Default)]
pub(crate) struct Releases {
    tokens: HashMap<Token, Requested>,
    pub(crate) violations: Vec<Violation>,
}

/// The requests with one token, which go to all servers.
#[derive(Clone, Copy, Debug)]
struct Requested {
    /// When the keys were asked for or extended for the last time.
    asked_at: u64,
    /// When the release was sent to the first server.
    released_at: Option<u64>,
    /// Whether nothing is expected of the process any more: an answer to the release was replaced, or a leftover key
    /// was found already.
    is_settled: bool,
}

impl Network {
    /// Notes what a process asks for and releases, and looks whether the server has keys that it should not have any
    /// more.
    pub(super) fn note_sent(&mut self, id: ConnectionId, now: u64, request: &Request) {
        let Request::Execute(commands) = request else {
            return self.look_for_leftovers(id, now);
        };
        for command in commands {
            self.releases.note_sent(now, command.operation());
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.prompt_since.get_or_insert(now);
        }
        self.look_for_leftovers(id, now);
    }

    /// Notes that answers were replaced, which their process cannot see.
    pub(super) fn note_spoiled(&mut self, request: &Request) {
        for token in request.released() {
            self.releases.settle(token);
        }
    }

    /// Notes what a server has done.
    pub(super) fn note_granted(&mut self, at: u64, operation: Operation) {
        let released_at = |token| self.releases.tokens.get(&token)?.released_at;
        match operation {
            Operation::Acquire { token, .. } if released_at(token).is_some() => {
                self.seen.note(Seen::SetAfterRelease);
            }
            Operation::Release { token }
                if released_at(token).is_some_and(|it| it + AGAIN < at) =>
            {
                self.seen.note(Seen::ReleasedLater);
            }
            _ => {}
        }
    }

    /// Returns the keys that a `Redlock` has left on the servers, although all its releases were delivered.
    pub(crate) fn keys_left_by(&self, service: ServiceId, addresses: usize) -> Vec<String> {
        let mut left = Vec::new();
        for server in (0..addresses).map(|address| self.machine(address)) {
            for key in self.servers[server].owned_by(self.at(), service) {
                if !self.releases.excuses(&key) {
                    left.push(format!("server {server} has {key}"));
                }
            }
        }
        left
    }

    fn look_for_leftovers(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let Some((service, prompt_since)) = connection.service.zip(connection.prompt_since(now))
        else {
            return;
        };
        let server = connection.server;
        for key in self.servers[server].owned_by(self.at(), service) {
            if let Some(released_at) = self.releases.overdue(&key, prompt_since, now) {
                let text = format!(
                    "{} server {server} has {key}, which was released at {}",
                    Seconds(now),
                    Seconds(released_at)
                );
                self.releases.violations.push(Violation(text));
                self.releases.settle(key.token);
            }
        }
    }
}

impl Releases {
    fn note_sent(&mut self, now: u64, operation: Operation) {
        match operation {
            Operation::Acquire { token, .. } | Operation::Extend { token, .. } => {
                self.requested(token, now).asked_at = now;
            }
            Operation::Release { token } => {
                self.requested(token, now).released_at.get_or_insert(now);
            }
            _ => {}
        }
    }

    fn settle(&mut self, token: Token) {
        if let Some(requested) = self.tokens.get_mut(&token) {
            requested.is_settled = true;
        }
    }

    /// Returns whether a key may be there although its release was delivered: a request on another connection may
    /// come after the release.
    fn excuses(&self, key: &Owned) -> bool {
        let requested = self.tokens.get(&key.token);
        requested.is_some_and(|it| {
            it.is_settled
                || it
                    .released_at
                    .is_some_and(|released_at| key.set_at > released_at)
        })
    }

    /// Returns when a key was released that should be gone by now.
    fn overdue(&self, key: &Owned, prompt_since: u64, now: u64) -> Option<u64> {
        let requested = self.tokens.get(&key.token).filter(|it| !it.is_settled)?;
        let released_at = requested.released_at?;
        let due = prompt_since.max(released_at).max(key.set_at) + DELIVERY;
        // A release is owed for one ttl since the process has given up. A key that is set then stays until it expires.
        let owed_until = requested.asked_at + key.ttl / 100 * 98;
        (due < now && due < owed_until).then_some(released_at)
    }

    fn requested(&mut self, token: Token, now: u64) -> &mut Requested {
        self.tokens.entry(token).or_insert(Requested {
            asked_at: now,
            released_at: None,
            is_settled: false,
        })
    }
}

impl Connection {
    /// Returns since when the server answers in time and refuses nothing, and the process does not stand still. `None`
    /// if that is not so.
    fn prompt_since(&self, now: u64) -> Option<u64> {
        let is_late = self.waiting.values().any(|it| it.sent + LATE < now);
        let since = self.prompt_since?.max(self.host.resumed_at());
        (!is_late).then_some(since)
    }
}
