use std::time::Duration;

/// How many of the last holds count.
const COUNTED: usize = 8;

/// The fewest holds to estimate by. With fewer, a single long hold would mislead.
const ENOUGH_TO_EXPECT: usize = 3;

/// How long the last holds of a lock took, in whole microseconds.
///
/// They are only a guess at the next holds. The median is what to expect, and the shortest is what each of the next
/// holds is likely to take at least.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldTimes {
    /// The newest overwrites the oldest.
    micros: [u32; COUNTED],
    counted: usize,
    next: usize,
    /// Whether all of them ended before the queue was empty. The next holds may be of another kind.
    are_old: bool,
}

impl HoldTimes {
    pub(super) fn note(&mut self, hold: Duration) {
        self.micros[self.next] = u32::try_from(hold.as_micros()).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % COUNTED;
        self.counted = (self.counted + 1).min(COUNTED);
        self.are_old = false;
    }

    /// Returns what to remember when the queue is empty.
    pub(super) fn remembered(self) -> Self {
        Self {
            are_old: true,
            ..self
        }
    }

    /// Returns the median, or `None` of fewer than three holds.
    pub(super) fn median(&self) -> Option<Duration> {
        let mut sorted = self.micros;
        let sorted = &mut sorted[..self.counted];
        sorted.sort_unstable();
        let middle = sorted.get(self.counted.checked_sub(1)? / 2)?;
        (self.counted >= ENOUGH_TO_EXPECT).then(|| micros(*middle))
    }

    /// Returns the shortest of the last eight, or `None` of fewer than eight and of old ones.
    pub(super) fn shortest(&self) -> Option<Duration> {
        let shortest = self.micros.iter().min()?;
        (self.counted == COUNTED && !self.are_old).then(|| micros(*shortest))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counted == 0
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}
