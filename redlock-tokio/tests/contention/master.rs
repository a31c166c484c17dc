//! A master that never fails. It knows what the clients of a run ask for.

use std::{ops::Range, time::Duration};

use redlock_core::{Operation, Timestamp, Token};

pub(crate) struct Master {
    keys: Vec<Option<Entry>>,
}

#[derive(Clone, Copy)]
struct Entry {
    token: Token,
    expires_at: Timestamp,
}

#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Granted,
    Denied,
    Free,
    /// The last of the keys is gone after this time.
    Taken {
        left: Duration,
    },
}

impl Master {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            keys: vec![None; keys],
        }
    }

    /// Returns whose token each of the keys has.
    pub(crate) fn owners(&self, now: Timestamp, keys: Range<usize>) -> Vec<Option<Token>> {
        let live = |key: usize| self.keys[key].filter(|it| now < it.expires_at);
        keys.map(|key| live(key).map(|it| it.token)).collect()
    }

    /// Carries out a request for all keys or for none, or for as many as are free if it gathers.
    pub(crate) fn execute(
        &mut self,
        now: Timestamp,
        keys: Range<usize>,
        operation: Operation,
    ) -> Answer {
        let owners = self.owners(now, keys.clone());
        match operation {
            Operation::Acquire {
                token,
                ttl,
                gathers,
                ..
            } => {
                let is_taken = |owner: &Option<Token>| owner.is_some_and(|it| it != token);
                let free = owners.iter().position(is_taken).unwrap_or(owners.len());
                let has_all = free == owners.len();
                if has_all || gathers {
                    let expires_at = now.saturating_add(ttl.as_duration());
                    self.keys[keys.start..keys.start + free]
                        .fill(Some(Entry { token, expires_at }));
                }
                if has_all {
                    Answer::Granted
                } else {
                    Answer::Denied
                }
            }
            Operation::Release { token } => {
                let mut had_all = true;
                for (key, owner) in keys.zip(owners) {
                    if owner == Some(token) {
                        self.keys[key] = None;
                    } else {
                        had_all = false;
                    }
                }
                if had_all {
                    Answer::Granted
                } else {
                    Answer::Denied
                }
            }
            Operation::Probe { token, .. } => {
                let others = keys
                    .zip(owners)
                    .filter(|(_, owner)| owner.is_some_and(|it| it != token));
                let left = others
                    .filter_map(|(key, _)| self.keys[key])
                    .map(|it| it.expires_at.saturating_duration_since(now));
                left.max()
                    .map_or(Answer::Free, |left| Answer::Taken { left })
            }
            other => panic!("no client asks for this: {other:?}"),
        }
    }
}
