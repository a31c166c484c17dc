//! Looks for leftover keys: keys that a server has although their process has released them, and could reach the
//! server.
//!
//! A process notes each release that it owes to a server, and sends it again four times a second for as long as the key
//! may live. So a key is gone soon after the release, if the server answers in time and refuses nothing.

use std::collections::{HashMap, HashSet};

use redlock_tokio::{Token, node::Operation};

use super::{Connection, Network, serving::IN_TIME};
use crate::{
    clock::MILLI,
    message::{ConnectionId, Request},
    requests::ServiceId,
    seen::Seen,
    server::Owned,
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
    /// The servers to which a release of this token was sent.
    released: HashSet<(Token, usize)>,
    /// The servers on which a release has deleted the key with this token.
    deleted: HashSet<(Token, usize)>,
    /// The servers on which an earlier request has set the key again after that.
    returned: HashSet<(Token, usize)>,
    /// The servers on which a client has adopted the key with this token.
    adopted: HashSet<(Token, usize)>,
    /// The tokens that were set again on such a server after that.
    came_back: HashSet<Token>,
    /// The tokens that others may release by force, while their process extends and repairs them.
    forced: HashSet<Token>,
    /// The tokens of locks that are to be released later, and that may be lost before.
    released_later: HashSet<Token>,
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

impl Releases {
    pub(super) fn note_sent(&mut self, now: u64, server: usize, operation: Operation) {
        match operation {
            Operation::Acquire { token, .. } | Operation::Adopt { token, .. }
                if self.released.contains(&(token, server)) && !self.forced.contains(&token) =>
            {
                let text = format!(
                    "{} server {server} is asked to set {token}, which was released there before",
                    Seconds(now)
                );
                let violation = Violation::new(Kind::LeftoverKey, text);
                self.violations.push(violation);
            }
            Operation::Acquire { token, .. }
            | Operation::Adopt { token, .. }
            | Operation::Extend { token, .. } => {
                self.requested(token, now).asked_at = now;
            }
            Operation::Release { token } => {
                self.requested(token, now).released_at.get_or_insert(now);
                self.released.insert((token, server));
            }
            _ => {}
        }
    }

    /// Notes that a server has deleted the key with this token.
    pub(super) fn note_deleted(&mut self, token: Token, server: usize) {
        self.deleted.insert((token, server));
    }

    /// Notes that a server has set a key. If it has deleted the key before, the process has the word that the key is
    /// gone, and does not know of the request on an earlier connection that comes now.
    pub(super) fn note_set(&mut self, token: Token, server: usize) {
        if self.deleted.contains(&(token, server)) {
            self.returned.insert((token, server));
        }
        if self.adopted.contains(&(token, server)) {
            self.came_back.insert(token);
        }
    }

    /// Notes that a server has given the key of this token to a client that adopts it.
    pub(super) fn note_adopted(&mut self, giver: Token, server: usize) {
        self.adopted.insert((giver, server));
    }

    /// Returns whether a server had the token again after a client had adopted its key there: by a request of the giver
    /// on an earlier connection.
    pub(crate) fn came_back(&self, giver: Token) -> bool {
        self.came_back.contains(&giver)
    }

    /// Returns whether an earlier request has set the key after its release had deleted it.
    pub(super) fn has_returned(&self, token: Token, server: usize) -> bool {
        self.returned.contains(&(token, server))
    }

    /// Notes that somebody else than its process may release a token from now on.
    pub(crate) fn force(&mut self, token: Token) {
        self.forced.insert(token);
    }

    /// Notes that a lock is to be released later, and may be lost before. The driver sends no release then, and the
    /// keys stay until they expire.
    pub(crate) fn delay(&mut self, token: Token) {
        self.released_later.insert(token);
    }

    pub(crate) fn settle(&mut self, token: Token) {
        if let Some(requested) = self.tokens.get_mut(&token) {
            requested.is_settled = true;
        }
    }

    /// Returns when the release was sent to the first server.
    pub(crate) fn released_at(&self, token: Token) -> Option<u64> {
        self.tokens.get(&token)?.released_at
    }

    /// Returns whether a key may be there although all releases were delivered: a request on another connection may
    /// come after the release, and no release is sent for a lock that was to be released later and is lost. Whether it
    /// was lost is not known here.
    pub(super) fn excuses(&self, key: &Owned) -> bool {
        let requested = self.tokens.get(&key.token);
        requested.is_some_and(|it| {
            let may_stay = match it.released_at {
                Some(released_at) => key.set_at > released_at,
                None => self.released_later.contains(&key.token),
            };
            may_stay || it.is_settled || self.forced.contains(&key.token)
        })
    }

    /// Returns when a key was released that should be gone by now.
    pub(super) fn overdue(&self, key: &Owned, prompt_since: u64, now: u64) -> Option<u64> {
        if self.forced.contains(&key.token) {
            return None;
        }
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
