use std::time::Duration;

/// How many of the last holds count.
const COUNTED: usize = 8;

/// The fewest holds to estimate by. With fewer, a single long hold would mislead.
const ENOUGH_TO_EXPECT: usize = 3;

/// How long the last holds of a lock took, in whole microseconds.
///
/// They are only a guess at the next holds: the median is what to expect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldTimes {
    /// The newest overwrites the oldest.
    micros: [u32; COUNTED],
    counted: usize,
    next: usize,
}

impl HoldTimes {
    pub(super) fn note(&mut self, hold: Duration) {
        self.micros[self.next] = u32::try_from(hold.as_micros()).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % COUNTED;
        self.counted = (self.counted + 1).min(COUNTED);
    }

    /// Returns the median, or `None` of fewer than three holds.
    pub(super) fn median(&self) -> Option<Duration> {
        let mut sorted = self.micros;
        let sorted = &mut sorted[..self.counted];
        sorted.sort_unstable();
        let middle = sorted.get(self.counted.checked_sub(1)? / 2)?;
        (self.counted >= ENOUGH_TO_EXPECT).then(|| micros(*middle))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counted == 0
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}
