use std::time::Duration;

/// How many of the last holds count.
const COUNTED: usize = 8;

/// From how many holds on one long one does not mislead.
const ENOUGH_TO_EXPECT: usize = 3;

/// How long the last holds of a lock took, in whole microseconds.
///
/// What they say of the holds to come is a guess, so that of two uses each has its own: the median is what
/// to expect, and the shortest is what every hold to come is likely to take at least.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldTimes {
    /// The newest overwrites the oldest.
    micros: [u32; COUNTED],
    counted: usize,
    next: usize,
    /// None of them since the queue was empty. What comes then may be of another kind.
    are_old: bool,
}

impl HoldTimes {
    pub(super) fn note(&mut self, hold: Duration) {
        self.micros[self.next] = u32::try_from(hold.as_micros()).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % COUNTED;
        self.counted = (self.counted + 1).min(COUNTED);
        self.are_old = false;
    }

    /// Returns what is remembered of them when the queue is empty.
    pub(super) fn remembered(self) -> Self {
        Self {
            are_old: true,
            ..self
        }
    }

    /// Returns the median, from three holds on.
    pub(super) fn median(&self) -> Option<Duration> {
        let mut sorted = self.micros;
        let sorted = &mut sorted[..self.counted];
        sorted.sort_unstable();
        let middle = sorted.get(self.counted.checked_sub(1)? / 2)?;
        (self.counted >= ENOUGH_TO_EXPECT).then(|| micros(*middle))
    }

    /// Returns the shortest of eight, as soon as there are eight and the last is new.
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
