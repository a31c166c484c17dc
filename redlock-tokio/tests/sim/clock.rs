//! Clocks that disagree. True time is what the world's queue of events counts, in nanoseconds.

use crate::rng::Rng;

pub(crate) const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000 * MICRO;
pub(crate) const SECOND: u64 = 1_000 * MILLI;
pub(crate) const HOUR: u64 = 3_600 * SECOND;

/// How fast a machine's clock runs, compared to true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// In parts per million of true time.
    faster_by: i64,
}

impl Rate {
    /// The largest deviation that keeps any two clocks within the drift allowance of 1 %:
    /// 1.0049 / 0.9951 < 1 / 0.99.
    const MOST_WITHIN: i64 = 4_900;

    /// Draws a rate within the drift allowance, at its edge as often as not.
    pub(crate) fn draw_within(rng: &mut Rng) -> Self {
        let most = Self::MOST_WITHIN;
        let any = rng.i64(-most..=most);
        let faster_by = rng.pick(&[-most, most, any, any]);
        Self { faster_by }
    }

    /// Draws a rate that is far too slow.
    pub(crate) fn draw_slow(rng: &mut Rng) -> Self {
        Self {
            faster_by: rng.i64(-400_000..=-100_000),
        }
    }

    /// Draws a rate that is far too fast.
    pub(crate) fn draw_fast(rng: &mut Rng) -> Self {
        Self {
            faster_by: rng.i64(100_000..=400_000),
        }
    }

    /// Returns how much the clock advances in this much true time.
    pub(crate) fn local(self, passed: u64) -> u64 {
        scale(passed, 1_000_000 + self.faster_by, 1_000_000)
    }

    /// Returns in how much true time the clock advances by `local`.
    pub(crate) fn true_time(self, local: u64) -> u64 {
        scale(local, 1_000_000, 1_000_000 + self.faster_by)
    }
}

fn scale(time: u64, by: i64, of: i64) -> u64 {
    let scaled = i128::from(time) * i128::from(by) / i128::from(of);
    // Rates are positive, and runs last hours.
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
