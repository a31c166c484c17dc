//! Looks for leftover keys: keys that a server has although their process has released them, and could reach the server.
//!
//! A process notes each release that it owes to a server, and sends it again four times a second for as long as the key
//! may live. So a key is gone soon after the release, if the server answers in time and refuses nothing.

use redlock_tokio::node::Operation;

use super::{Connection, Network, serving::IN_TIME};
use crate::{
    clock::MILLI,
    message::{ConnectionId, Request},
    requests::ServiceId,
    seen::Seen,
    trace::Seconds,
    violation::{Kind, Violation},
};

/// From when on a release must have been sent a second time.
const AGAIN: u64 = 200 * MILLI;

impl Network {
    /// Notes what a process asks for and releases, and looks whether the server has keys that it should not have any
    /// more.
    pub(super) fn note_sent(&mut self, id: ConnectionId, now: u64, request: &Request) {
        let Request::Execute(commands) = request else {
            return self.look_for_leftovers(id, now);
        };
        let Some(server) = self.connections.get(&id).map(|it| it.server) else {
            return;
        };
        for command in commands {
            self.releases.note_sent(now, server, command.operation());
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
    pub(super) fn note_granted(&mut self, at: u64, server: usize, operation: Operation) {
        match operation {
            Operation::Acquire { token, .. } => self.releases.note_set(token, server),
            Operation::Adopt { giver, token, .. } => {
                self.releases.note_set(token, server);
                self.releases.note_adopted(giver, server);
            }
            Operation::Release { token } => self.releases.note_deleted(token, server),
            _ => {}
        }
        let released_at = |token| self.releases.released_at(token);
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
        // Nobody owes a release to a former owner of a seat: its keys are of no use.
        let named = self.authorities.owners_now();
        let servers = named.unwrap_or_else(|| (0..addresses).map(|it| self.machine(it)).collect());
        for server in servers {
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
        let Some(prompt_since) = connection.prompt_since(now) else {
            return;
        };
        let (service, server) = (connection.service, connection.server);
        for key in self.servers[server].owned_by(self.at(), service) {
            if self.releases.has_returned(key.token, server) {
                continue;
            }
            if let Some(released_at) = self.releases.overdue(&key, prompt_since, now) {
                let text = format!(
                    "{} server {server} has {key}, which was released at {}",
                    Seconds(now),
                    Seconds(released_at)
                );
                let violation = Violation::new(Kind::LeftoverKey, text);
                self.releases.violations.push(violation);
                self.releases.settle(key.token);
            }
        }
    }
}

impl Connection {
    /// Returns since when the server answers in time and refuses nothing, and the process does not stand still. `None`
    /// if that is not so.
    pub(super) fn prompt_since(&self, now: u64) -> Option<u64> {
        let is_late = self.waiting.values().any(|it| it.sent + IN_TIME < now);
        let since = self.prompt_since?.max(self.host.resumed_at());
        (!is_late).then_some(since)
    }
}
