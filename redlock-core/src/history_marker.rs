use core::time::Duration;

use crate::ReplicationId;

/// A key on a node by which clients know for how long the node's history exists.
///
/// A server does not say when it was promoted. So the first client that meets a history writes a key
/// that is named after the history. From then on the key tells an age that the history has *at least*. A
/// promotion begins another history, for which there is no key.
///
/// A client writes the key with `SET key 0 NX PX 86400000`, reads it with `GET` and `PTTL`, and gives
/// both answers to [`HistoryMarker::read`]. At least once every few hours the client reads the key again
/// and writes the value of [`HistoryMarker::renewal`] with `SET key value PX 86400000`.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::HistoryMarker;
///
/// // `GET` says 5000, and `PTTL` that an hour of the key's day is over.
/// let marker = HistoryMarker::read(b"5000", 23 * 3_600_000).expect("it was written like this");
/// assert_eq!(marker.age(), Duration::from_millis(5000 + 3_600_000 - 1));
/// assert_eq!(marker.renewal(), None); // too early
/// ```
///
/// # Why it never claims too much
///
/// The value is the age that the history had at least when the key was written, in milliseconds. The
/// part of the time to live that has passed is how long ago that was. The first value is 0. A renewal
/// writes an age that was read from the key earlier. The history has only become older since, however
/// late the write arrives, and whatever other clients have written meanwhile. So a renewal never claims
/// more than is true. It may claim less, by as much as it was late.
///
/// # Why there is no quarantine once a day
///
/// A renewal keeps the age, and not only the key. It is due when half of the time to live is over,
/// so there are twelve hours in which one client has to renew the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HistoryMarker {
    /// The age at which it was written, in milliseconds.
    written_at_age: u64,
    /// How long ago that was, in milliseconds.
    passed: u64,
}

impl HistoryMarker {
    /// The time to live that the key is written with, in milliseconds: a day.
    pub const TTL_MILLIS: u64 = 86_400_000;

    /// The beginning of the key's name. The [`ReplicationId`] follows.
    pub const PREFIX: &'static str = "redlock:since:";

    /// Returns the name of the key for a history.
    #[must_use]
    pub fn key(history: ReplicationId) -> alloc::string::String {
        alloc::format!("{}{history}", Self::PREFIX)
    }

    /// Reads the key's value and its `PTTL`, in milliseconds. Returns `None` if the key is not there, does
    /// not expire, or has another value than a number. Then nothing is known.
    #[must_use]
    pub fn read(value: &[u8], pttl: i64) -> Option<Self> {
        let written_at_age = core::str::from_utf8(value).ok()?.parse().ok()?;
        let left = u64::try_from(pttl).ok()?;
        // A server drops parts of a millisecond at both ends.
        let passed = Self::TTL_MILLIS.saturating_sub(left).saturating_sub(1);
        Some(Self {
            written_at_age,
            passed,
        })
    }

    /// Returns the age that the history has at least.
    #[must_use]
    pub const fn age(self) -> Duration {
        Duration::from_millis(self.written_at_age.saturating_add(self.passed))
    }

    /// Returns the value of the next renewal, or `None` while that is too early.
    #[must_use]
    pub const fn renewal(self) -> Option<u64> {
        if self.passed < Self::TTL_MILLIS / 2 {
            None
        } else {
            Some(self.written_at_age.saturating_add(self.passed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn read(value: &str, hours_left: u64) -> HistoryMarker {
        HistoryMarker::read(value.as_bytes(), (hours_left * HOUR) as i64).unwrap()
    }

    #[test]
    fn tells_the_age_at_which_it_was_written_and_what_has_passed_since() {
        assert_eq!(read("0", 24).age(), Duration::ZERO);
        let marker = read("5000", 23);
        assert_eq!(marker.age(), Duration::from_millis(5000 + HOUR - 1));
        assert_eq!(marker.renewal(), None, "too early");
    }

    #[test]
    fn a_renewal_keeps_the_age_and_adds_nothing() {
        let old = read("7", 12 - 1);
        let renewal = old.renewal().expect("more than half is over");
        let renewed = HistoryMarker::read(
            alloc::format!("{renewal}").as_bytes(),
            HistoryMarker::TTL_MILLIS as i64,
        );
        assert_eq!(renewed.unwrap().age(), old.age());
        assert_eq!(renewed.unwrap().renewal(), None);
    }

    #[test]
    fn what_was_not_written_like_this_tells_nothing() {
        for (value, pttl) in [("", 5), ("-1", 5), ("yes", 5), ("0", -1), ("0", -2)] {
            assert_eq!(HistoryMarker::read(value.as_bytes(), pttl), None, "{value}");
        }
        // A clock that was set back shows as a time to live that is too long.
        let future = HistoryMarker::read(b"3", i64::MAX).unwrap();
        assert_eq!(future.age(), Duration::from_millis(3));
        assert_eq!(
            read("18446744073709551615", 1).age(),
            Duration::from_millis(u64::MAX)
        );
    }

    #[test]
    fn the_key_is_named_after_the_history() {
        let history = ReplicationId::new([b'7'; ReplicationId::LEN]);
        assert!(HistoryMarker::key(history).starts_with("redlock:since:7777"));
    }
}
