//! What a fenced lease has to propose.

use redlock_core::{FencingToken, Timestamp};

/// What was proposed so far, and what must be outbid.
pub(super) struct Purse {
    begin: Timestamp,
    first: FencingToken,
    /// All that was proposed, and all counters that count.
    pub(super) known: Vec<FencingToken>,
}

impl Purse {
    pub(super) fn new(begin: Timestamp, first: FencingToken) -> Self {
        let known = Vec::new();
        Self {
            begin,
            first,
            known,
        }
    }

    /// One more than the largest that is known, if there is one.
    pub(super) fn next(&self) -> Option<FencingToken> {
        self.known
            .iter()
            .max()
            .copied()
            .and_then(FencingToken::next)
    }

    /// What an attempt proposes: as many more as microseconds have passed, or one more than is known.
    pub(super) fn attempt(&mut self, now: Timestamp) -> FencingToken {
        let passed = now.saturating_duration_since(self.begin).as_nanos() / 1000;
        let by_time = u128::from(self.first.get()) + passed;
        let by_time = FencingToken::new(by_time.try_into().unwrap_or(u64::MAX));
        let last = self.known.contains(&FencingToken::MAX);
        let fence = if last {
            FencingToken::MAX
        } else {
            self.next().into_iter().fold(by_time, FencingToken::max)
        };
        self.known.push(fence);
        fence
    }
}
