//! A key on a server that one `Redlock` has set.

use std::fmt;

use redlock_tokio::{Key, Token};

use super::store::{Entry, Name};

/// A key that has not expired, as its server has it.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    key: Key,
    pub(crate) token: Token,
    /// When it was set or extended, in true time.
    pub(crate) set_at: u64,
    /// For how long it was set, in nanoseconds of the server's clock.
    pub(crate) ttl: u64,
}

impl Owned {
    pub(super) fn new(name: &Name, entry: &Entry) -> Self {
        Self {
            key: name.key.clone(),
            token: entry.token,
            set_at: entry.set_at,
            ttl: entry.ttl.as_duration().as_nanos() as u64,
        }
    }
}

impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, token, .. } = self;
        write!(f, "{key:?} with the token {token}")
    }
}
