//! What processes have asked for and released, and until when a released key may be on a server.

use std::collections::{HashMap, HashSet};

use redlock_tokio::{Token, node::Operation};

use crate::{
    clock::MILLI,
    server::Owned,
    trace::Seconds,
    violation::{Kind, Violation},
};

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

    /// Returns whether a server had the token again after a client had adopted its key there: by a request of the giver on an
    /// earlier connection.
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
