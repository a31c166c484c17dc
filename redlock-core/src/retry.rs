use core::{error::Error, fmt, ops::RangeInclusive, time::Duration};

use crate::{Timestamp, timestamp::saturating_nanos};

/// The longest backoff of a client after its first collision: some round trips on a local network.
const FIRST_WINDOW: Duration = Duration::from_millis(1);

/// The longest time between two attempts during a quarantine, unless the schedule has longer delays. Nodes
/// that were down may have come back meanwhile.
const QUARANTINE_INTERVAL: Duration = Duration::from_secs(1);

/// A client that is notified probes a taken key this rarely, in case that a notification was lost.
const NOTIFIED_INTERVAL: Duration = Duration::from_secs(10);

/// But it leaves time for other probes before its deadline, this long at least from one to the next.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// When to try again after a failed attempt, and when to give up.
///
/// "When a client is unable to acquire the lock, it should try again after a random delay in order
/// to try to desynchronize multiple clients trying to acquire the lock for the same resource at the
/// same time" (the Redlock page, "Retry on failure"). The delay is uniform within a range. The
/// number of attempts is bounded by the deadline that [`Lease::acquire`](crate::Lease::acquire) is
/// given, and by a count if one is set.
///
/// The schedule draws no randomness of its own. The caller passes 64 random bits for each delay.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{RetrySchedule, Timestamp};
///
/// let millis = Duration::from_millis;
/// let schedule = RetrySchedule::new(millis(20)..=millis(200))?.with_max_attempts(5);
/// let deadline = Timestamp::ZERO.saturating_add(millis(1000));
///
/// // After the first attempt, with the smallest and the largest of the random bits:
/// let next = |random| schedule.next_attempt(deadline, 1, Timestamp::ZERO, random);
/// assert_eq!(next(0), Some(Timestamp::ZERO.saturating_add(millis(20))));
/// assert_eq!(next(u64::MAX), Some(Timestamp::ZERO.saturating_add(millis(200))));
/// # Ok::<(), redlock_core::RetryScheduleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetrySchedule {
    shortest: Duration,
    longest: Duration,
    max_attempts: Option<u32>,
    probes: bool,
}

impl RetrySchedule {
    /// Creates a schedule with a delay drawn from `delay`.
    ///
    /// # Errors
    ///
    /// Refuses an empty range, and a range that starts at zero. A client without a delay would flood the
    /// nodes, and two such clients could split the votes for ever.
    pub fn new(delay: RangeInclusive<Duration>) -> Result<Self, RetryScheduleError> {
        let (shortest, longest) = delay.into_inner();
        if shortest.is_zero() || shortest > longest {
            Err(RetryScheduleError { shortest, longest })
        } else {
            Ok(Self {
                shortest,
                longest,
                max_attempts: None,
                probes: false,
            })
        }
    }

    /// Returns the same schedule with at most `attempts` attempts. Zero counts as one. A scheduled probe of a
    /// taken key counts as an attempt. The delays are then never shorter or longer than the schedule says.
    #[must_use]
    pub fn with_max_attempts(self, attempts: u32) -> Self {
        Self {
            max_attempts: Some(attempts),
            ..self
        }
    }

    /// Returns the same schedule, but with probes of a taken key instead of blind attempts. The next
    /// attempt starts as soon as the key is free on a quorum of nodes, because it was released or has
    /// expired. The delay is the time until the next probe.
    ///
    /// "It should try again after a random delay in order to try to desynchronize multiple clients"
    /// (the Redlock page): here clients are kept apart by a random backoff that starts at zero. It doubles
    /// each time that an attempt fails, and starts anew when another client is seen to have the key.
    #[must_use]
    pub fn with_probes(self) -> Self {
        Self {
            probes: true,
            ..self
        }
    }

    /// Returns when to probe again after `tries` attempts and probes, or `None` to give up. A wait before a
    /// probe is useful even if it ends at the deadline, because the key may be free before.
    pub(crate) fn next_probe(
        &self,
        deadline: Timestamp,
        tries: u32,
        now: Timestamp,
        random: u64,
    ) -> Option<Timestamp> {
        let is_allowed = self.max_attempts.is_none_or(|most| tries < most);
        let next = self.next_attempt(deadline, tries, now, random);
        next.or(Some(deadline).filter(|_| is_allowed && now < deadline))
    }

    /// Returns the same schedule for a client that is notified and has so much time left.
    pub(crate) fn with_patience(self, left: Duration) -> Self {
        if self.max_attempts.is_some() {
            return self;
        }
        let longest = (left / 2).clamp(LEAST_INTERVAL, NOTIFIED_INTERVAL);
        Self {
            shortest: self.shortest.max(longest / 2),
            longest: self.longest.max(longest),
            ..self
        }
    }

    /// Returns whether the number of attempts is limited.
    pub(crate) const fn is_limited(&self) -> bool {
        self.max_attempts.is_some()
    }

    pub(crate) const fn has_probes(&self) -> bool {
        self.probes
    }

    /// Returns how long to back off before the next attempt after this many collisions that nobody has won.
    pub(crate) fn backoff(&self, collisions: u32, random: u64) -> Duration {
        let window = self.backoff_window(collisions);
        fraction(window, random)
    }

    /// Returns the longest of these times.
    fn backoff_window(&self, collisions: u32) -> Duration {
        match collisions.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_WINDOW
                .saturating_mul(1 << doublings.min(16))
                .min(self.longest),
        }
    }

    /// Returns when to try again after `attempts` failed attempts, or `None` to give up.
    ///
    /// Near the deadline the upper end of the range shrinks, so that an attempt still has at least the
    /// shortest delay left to run. If that is not possible, the answer is `None` at once. The delay stays
    /// uniform within the smaller range.
    #[must_use]
    pub fn next_attempt(
        &self,
        deadline: Timestamp,
        attempts: u32,
        now: Timestamp,
        random: u64,
    ) -> Option<Timestamp> {
        if self.max_attempts.is_some_and(|most| attempts >= most) {
            return None;
        }
        let left = saturating_nanos(deadline.saturating_duration_since(now));
        let shortest = saturating_nanos(self.shortest);
        let longest = saturating_nanos(self.longest).min(left.saturating_sub(shortest));
        let span = longest.checked_sub(shortest)?;
        // Maps 64 random bits onto 0..=span without a division's bias towards small values.
        let extra = (u128::from(random) * (u128::from(span) + 1)) >> 64;
        Some(now.saturating_add(Duration::from_nanos(shortest + extra as u64)))
    }

    /// Returns when to try again while nodes that are needed have no vote until `until`, or `None` to
    /// give up.
    ///
    /// The time is `until` plus a random delay of at most the shortest delay. Before that, there is an
    /// attempt about once a second, or once in the longest delay if that is longer, because other nodes may
    /// come back. If the deadline is earlier, the answer is the deadline, and the attempts end there.
    #[must_use]
    pub fn next_in_quarantine(
        &self,
        deadline: Timestamp,
        attempts: u32,
        now: Timestamp,
        until: Timestamp,
        random: u64,
    ) -> Option<Timestamp> {
        if self.max_attempts.is_some_and(|most| attempts >= most) || now >= deadline {
            return None;
        }
        let opens_at = until.max(now);
        let room = deadline.saturating_duration_since(opens_at) / 2;
        let spread = fraction(self.shortest.min(room), random).max(Duration::from_nanos(1));
        let pause = QUARANTINE_INTERVAL.max(self.longest);
        let again = now
            .saturating_add(pause / 2)
            .saturating_add(fraction(pause / 2, random));
        let next = opens_at.saturating_add(spread).min(again);
        Some(next.min(deadline))
    }
}

/// Returns a random part of a time, from zero to all but its last nanosecond.
pub(crate) fn fraction(of: Duration, random: u64) -> Duration {
    let nanos = u128::from(saturating_nanos(of));
    Duration::from_nanos(((u128::from(random) * nanos) >> 64) as u64)
}

/// Why a range of delays makes no schedule: the shortest delay is zero, or longer than the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryScheduleError {
    shortest: Duration,
    longest: Duration,
}

impl fmt::Display for RetryScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shortest, longest } = self;
        if shortest.is_zero() {
            return f.write_str("the shortest retry delay is zero");
        }
        write!(
            f,
            "the shortest retry delay ({shortest:?}) is longer than the longest ({longest:?})"
        )
    }
}

impl Error for RetryScheduleError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said::MS;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(MS(millis))
    }

    fn schedule() -> RetrySchedule {
        RetrySchedule::new(MS(20)..=MS(200)).unwrap()
    }

    #[test]
    fn clients_that_collide_again_back_off_for_longer() {
        let window = |collisions| schedule().backoff_window(collisions);
        assert_eq!([0, 1, 2, 5].map(window), [MS(0), MS(1), MS(2), MS(16)]);
        assert_eq!([9, u32::MAX].map(window), [MS(200); 2]);
        assert_eq!(schedule().backoff(0, u64::MAX), MS(0));
        let longest = schedule().backoff(3, u64::MAX);
        assert!(longest < MS(4) && longest > MS(4) - Duration::from_nanos(2));
        assert_eq!(schedule().backoff(3, 0), MS(0));
    }

    #[test]
    fn probes_go_on_until_the_deadline() {
        let deadline = at(1000);
        let next = |schedule: RetrySchedule, now| schedule.next_probe(deadline, 2, now, 0);
        assert_eq!(next(schedule(), at(900)), Some(at(920)));
        assert_eq!(next(schedule(), at(999)), Some(deadline));
        assert_eq!(next(schedule(), deadline), None);
        assert_eq!(next(schedule().with_max_attempts(2), at(999)), None);
    }

    #[test]
    fn a_quarantine_is_waited_for_with_an_attempt_once_a_second() {
        let deadline = at(5000);
        let next = |now, until, random| {
            schedule().next_in_quarantine(deadline, 1, at(now), at(until), random)
        };
        let a_nanosecond = Duration::from_nanos(1);
        let just_before = |millis| Some(at(millis).saturating_sub(a_nanosecond));
        assert_eq!(next(0, 300, 0), Some(at(300).saturating_add(a_nanosecond)));
        assert_eq!(next(0, 300, u64::MAX), just_before(320));
        assert_eq!(next(0, 9000, 0), Some(at(500)));
        assert_eq!(next(0, 9000, u64::MAX), just_before(1000));
        assert_eq!(next(4900, 4996, u64::MAX / 2), just_before(4997));
        assert_eq!(next(4900, 9000, 0), Some(deadline));
        assert_eq!(next(5000, 9000, 0), None);
        // Not at once, whatever a node says.
        assert!(next(7, 3, 0) > Some(at(7)));
        let once = schedule().with_max_attempts(1);
        assert_eq!(once.next_in_quarantine(deadline, 1, at(0), at(9), 0), None);
    }

    #[test]
    fn probes_of_a_client_that_is_notified_are_rare() {
        let delays = |left| {
            let patient = schedule().with_patience(MS(left));
            (patient.shortest, patient.longest)
        };
        assert_eq!(delays(60_000), (MS(5000), MS(10_000)));
        assert_eq!(delays(5000), (MS(1250), MS(2500)), "time for more");
        assert_eq!(delays(10), (MS(500), MS(1000)));
        let limited = schedule().with_max_attempts(9);
        assert_eq!(limited.with_patience(Duration::MAX), limited);
        let long = RetrySchedule::new(MS(6000)..=MS(20_000)).unwrap();
        assert_eq!(long.with_patience(Duration::MAX), long, "long already");
    }

    #[test]
    fn refuses_ranges_without_a_delay() {
        for (shortest, longest) in [(MS(0), MS(9)), (MS(9), MS(8))] {
            let error = RetrySchedule::new(shortest..=longest);
            assert_eq!(error, Err(RetryScheduleError { shortest, longest }));
        }
    }
}
