//! Looks for leftover keys: keys that a server has although their process has released them, and could reach the
//! server.
//!
//! A process notes each release that it owes to a server, and sends it again four times a second for as long as the key
//! may live. So a key is gone soon after the release, if the server answers in time and refuses nothing.

use std::collections::HashMap;

use redlock_tokio::{Token, node::Operation};

use super::{Connection, Network, serving::IN_TIME};
use crate::{
    clock::MILLI,
    message::{ConnectionId, Request},
    requests::ServiceId,
    seen::Seen,
    server::Entry,
    trace::Seconds,
    violation::{Kind, Violation},
};

/// From when on a release must have been sent a second time.
const AGAIN: u64 = 200 * MILLI;

/// How long it takes at most until a server has got a release that it is owed: two pauses of a quarter of a second
/// between deliveries, a round trip after each, and what the slowest clock adds.
const DELIVERY: u64 = 700 * MILLI;

/// What processes have asked for and released. The order of the map is never looked at.
#[derive(Default)]
pub(crate) struct Releases {
    tokens: HashMap<Token, Requested>,
}

/// The requests with one token, which go to all servers.
#[derive(Default)]
struct Requested {
    /// When the keys were asked for or extended for the last time.
    asked_at: u64,
    /// When the release was sent to the first server.
    released_at: Option<u64>,
    /// Nothing is expected of the process any more: an answer to the release was replaced, or a leftover key was found
    /// already.
    is_settled: bool,
    /// Others may release it by force, while its process extends and repairs it.
    is_forced: bool,
    /// Its lock is to be released later, and may be lost before.
    is_released_later: bool,
    /// A server had it again after a client had adopted its key there.
    came_back: bool,
    servers: HashMap<usize, Done>,
}

/// What one server has got and done with a token.
#[derive(Default)]
struct Done {
    /// A release was sent there.
    is_released: bool,
    /// A release has deleted the key.
    is_deleted: bool,
    /// A request on an earlier connection has set the key after that. The process has the word that the key is gone.
    has_returned: bool,
    /// A client has adopted the key.
    is_adopted: bool,
}

impl Network {
    /// Notes what a process asks for and releases, and looks whether the server has keys that it should not have any
    /// more.
    pub(super) fn note_sent(&mut self, id: ConnectionId, now: u64, request: &Request) {
        if let Request::Execute(commands) = request
            && let Some(connection) = self.connections.get_mut(&id)
        {
            for command in commands {
                let operation = command.operation();
                let failure = self.releases.note_sent(now, connection.server, operation);
                let failure = failure.map(|it| Violation::new(Kind::LeftoverKey, it));
                self.violations.extend(failure);
            }
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
        self.releases.note_granted(server, operation);
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
        for server in self.writable_servers(addresses) {
            for (key, entry) in self.servers[server].owned_by(self.at(), service) {
                if !self.releases.excuses(entry) {
                    left.push(format!("server {server} has {key:?} of {}", entry.token));
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
        for (key, entry) in self.servers[server].owned_by(self.at(), service) {
            let Some(released_at) = self.releases.overdue(entry, server, prompt_since, now) else {
                continue;
            };
            let text = format!(
                "{} server {server} has {key:?} of {}, which was released at {}",
                Seconds(now),
                entry.token,
                Seconds(released_at)
            );
            let violation = Violation::new(Kind::LeftoverKey, text);
            self.violations.push(violation);
            self.releases.settle(entry.token);
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

impl Releases {
    /// Notes a request. Returns what is wrong with it, if something is.
    fn note_sent(&mut self, now: u64, server: usize, operation: Operation) -> Option<String> {
        match operation {
            Operation::Acquire { token, .. }
            | Operation::Adopt { token, .. }
            | Operation::Extend { token, .. } => {
                let sets = !matches!(operation, Operation::Extend { .. });
                let requested = self.requested(token);
                requested.asked_at = now;
                let was_released = requested.on(server).is_released;
                (sets && was_released && !requested.is_forced).then(|| {
                    format!(
                        "{} server {server} is asked to set {token}, which was released there before",
                        Seconds(now)
                    )
                })
            }
            Operation::Release { token } => {
                let requested = self.requested(token);
                requested.released_at.get_or_insert(now);
                requested.on(server).is_released = true;
                None
            }
            _ => None,
        }
    }

    fn note_granted(&mut self, server: usize, operation: Operation) {
        match operation {
            Operation::Acquire { token, .. } => self.note_set(token, server),
            Operation::Adopt { giver, token, .. } => {
                self.note_set(token, server);
                self.requested(giver).on(server).is_adopted = true;
            }
            Operation::Release { token } => self.requested(token).on(server).is_deleted = true,
            _ => {}
        }
    }

    fn note_set(&mut self, token: Token, server: usize) {
        let requested = self.requested(token);
        let done = requested.on(server);
        done.has_returned |= done.is_deleted;
        requested.came_back |= done.is_adopted;
    }

    /// Returns whether a server had the token again after a client had adopted its key there: by a request of the giver
    /// on an earlier connection.
    pub(crate) fn came_back(&self, giver: Token) -> bool {
        self.tokens.get(&giver).is_some_and(|it| it.came_back)
    }

    /// Notes that somebody else than its process may release a token from now on.
    pub(crate) fn force(&mut self, token: Token) {
        self.requested(token).is_forced = true;
    }

    /// Notes that a lock is to be released later, and may be lost before. The driver sends no release then, and the
    /// keys stay until they expire.
    pub(crate) fn delay(&mut self, token: Token) {
        self.requested(token).is_released_later = true;
    }

    pub(crate) fn settle(&mut self, token: Token) {
        self.requested(token).is_settled = true;
    }

    /// Returns when the release was sent to the first server.
    pub(crate) fn released_at(&self, token: Token) -> Option<u64> {
        self.tokens.get(&token)?.released_at
    }

    /// Returns whether a key may be there although all releases were delivered: a request on another connection may
    /// come after the release, and no release is sent for a lock that was to be released later and is lost. Whether it
    /// was lost is not known here.
    fn excuses(&self, key: &Entry) -> bool {
        self.tokens.get(&key.token).is_some_and(|it| {
            let may_stay = match it.released_at {
                Some(released_at) => key.set_at > released_at,
                None => it.is_released_later,
            };
            may_stay || it.is_settled || it.is_forced
        })
    }

    /// Returns when a key was released that should be gone by now.
    fn overdue(&self, key: &Entry, server: usize, prompt_since: u64, now: u64) -> Option<u64> {
        let requested = self.tokens.get(&key.token)?;
        let has_returned = (requested.servers.get(&server)).is_some_and(|it| it.has_returned);
        if requested.is_settled || requested.is_forced || has_returned {
            return None;
        }
        let released_at = requested.released_at?;
        let due = prompt_since.max(released_at).max(key.set_at) + DELIVERY;
        // A release is owed for one ttl since the process has given up. A key that is set then stays until it expires.
        let owed_until = requested.asked_at + key.ttl.as_millis() * MILLI / 100 * 98;
        (due < now && due < owed_until).then_some(released_at)
    }

    fn requested(&mut self, token: Token) -> &mut Requested {
        self.tokens.entry(token).or_default()
    }
}

impl Requested {
    fn on(&mut self, server: usize) -> &mut Done {
        self.servers.entry(server).or_default()
    }
}
