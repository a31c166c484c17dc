//! Clocks that disagree. True time is what the simulator's event queue counts, in nanoseconds.

use redlock_core::Timestamp;

use crate::rng::Rng;

pub(crate) const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000 * MICRO;
pub(crate) const SECOND: u64 = 1_000 * MILLI;
pub(crate) const HOUR: u64 = 3_600 * SECOND;

/// One machine's clock: true time at a rate of its own, from a zero of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero: i64,
    /// How much faster than true time it runs, in parts per million.
    rate: i64,
}

impl Clock {
    /// The largest deviation that keeps *any two* clocks within the drift allowance of 1 %:
    /// 1.0049 / 0.9951 < 1 / 0.99.
    pub(crate) const RATE_WITHIN: i64 = 4_900;

    /// Creates a clock that shows `zero` at true time zero.
    pub(crate) fn new(zero: u64, rate: i64) -> Self {
        Self {
            // Zeros are drawn within hours.
            zero: zero as i64,
            rate,
        }
    }

    /// Draws a clock within the drift allowance, at its edge as often as not.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let most = Self::RATE_WITHIN;
        let any = rng.below(2 * most as u64 + 1) as i64 - most;
        let rate = rng.pick(&[-most, most, any, any]);
        let zero = rng.between(1_000, 10_000) * SECOND + rng.below(SECOND);
        Self::new(zero, rate)
    }

    pub(crate) fn rate(self) -> i64 {
        self.rate
    }

    /// Returns what the clock shows at a true time.
    pub(crate) fn local(self, at: u64) -> u64 {
        // Runs last a few hours (1e13 ns) and rates stay below 5e5, so the product fits 63 bits.
        let at = at as i64;
        (self.zero + at + at * self.rate / 1_000_000) as u64
    }

    pub(crate) fn timestamp(self, at: u64) -> Timestamp {
        Timestamp::from_nanos(self.local(at))
    }

    /// Returns the first true time at which the clock shows `local` or more.
    pub(crate) fn when(self, local: u64) -> u64 {
        let since = i128::from(local) - i128::from(self.zero);
        let rate = i128::from(1_000_000 + self.rate);
        // "Never" stays beyond every run, and a past that this clock has not seen is now.
        let mut at = (since * 1_000_000 / rate).clamp(0, i128::from(u64::MAX / 8)) as u64;
        while at < u64::MAX / 8 && self.local(at) < local {
            at += 1;
        }
        at
    }

    /// Steps the clock by this many nanoseconds: an operator, or a bad time server.
    pub(crate) fn step(&mut self, by: i64) {
        self.zero += by;
    }
}
