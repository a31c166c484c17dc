//! The fingerprint of a run, and its transcript for a replay.

use std::fmt;

use crate::clock::SECOND;

/// FNV-1a over the words of every event, and the events as text if asked for.
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    print: bool,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            print,
        }
    }

    pub(crate) fn event(&mut self, words: [u64; 4]) {
        self.events += 1;
        for word in words {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            // A word is wider than FNV's byte: this lets its high bits act on the low ones too.
            self.hash ^= self.hash >> 32;
        }
    }

    /// Prints a line of the transcript; costs nothing unless `SIM_TRACE` asked for it.
    pub(crate) fn tell(&self, at: u64, line: impl FnOnce() -> String) {
        if self.print {
            println!("{:>14} {}", Seconds(at), line());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}

/// Nanoseconds, shown as seconds.
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:09}", self.0 / SECOND, self.0 % SECOND);
        f.pad(&text)
    }
}
