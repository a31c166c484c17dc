use std::time::Duration;

use crate::random::Random;

/// The delays between attempts to connect.
///
/// Each delay is twice the one before, up to a second. Half of it is random, so that the clients of a
/// node that comes back do not all connect at once.
pub(super) struct Backoff {
    next: Duration,
    random: Random,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(super) fn new(random: Random) -> Self {
        Self {
            next: Self::FIRST,
            random,
        }
    }

    /// Starts over with the shortest delay.
    pub(super) fn reset(&mut self) {
        self.next = Self::FIRST;
        self.random.reseed();
    }

    pub(super) fn next(&mut self) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(Self::LONGEST);
        self.random.reseed();
        // Without randomness the delays are not spread, which is no reason to fail.
        let random = self.random.u32().unwrap_or(u32::MAX);
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Random::system());
        let mut most = Backoff::FIRST;
        for _ in 0..20 {
            let delay = backoff.next();
            assert!(delay >= most / 2 && delay <= most, "{delay:?} of {most:?}");
            most = (most * 2).min(Backoff::LONGEST);
        }
        assert_eq!(most, Backoff::LONGEST);
    }
}
