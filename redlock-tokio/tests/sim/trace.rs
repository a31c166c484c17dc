//! The fingerprint of a run, and its transcript for a replay.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::clock::SECOND;

/// A hash of every event, and the events as text if they are asked for.
pub(crate) struct Trace {
    hash: DefaultHasher,
    print: bool,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Self {
        Self {
            hash: DefaultHasher::new(),
            print,
        }
    }

    /// Notes something that happened at `at`. The text is made only for a transcript.
    pub(crate) fn note(&mut self, at: u64, what: impl Hash, text: impl FnOnce() -> String) {
        at.hash(&mut self.hash);
        what.hash(&mut self.hash);
        if self.print {
            println!("{:>16} {}", Seconds(at).to_string(), text());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }
}

/// Nanoseconds, shown as seconds.
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / SECOND, self.0 % SECOND / 1000)
    }
}
