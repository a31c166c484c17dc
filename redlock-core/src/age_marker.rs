use alloc::{format, string::String};
use core::time::Duration;

use crate::{ReplicationId, Tenure};

/// A key on a node by which clients know for how long something is true of the node: for how long its
/// history exists, or for how long it has been the owner in a tenure.
///
/// A server does not say when it was promoted. So the first client that meets a history writes a key
/// that is named after the history. From then on the key shows an age that the history has *at least*. A
/// promotion begins another history, for which there is no key. In the same way, a client that had a
/// confirmation of a [`Tenure`] writes a key that is named after the tenure on its owner.
///
/// A client writes the key with `SET key 0 NX PX 86400000`, reads it with `GET` and `PTTL`, and gives
/// both answers to [`AgeMarker::read`]. At least once every few hours the client reads the key again
/// and writes the value of [`AgeMarker::renewal`] with `SET key value PX 86400000`.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::AgeMarker;
///
/// // `GET` says 5000, and `PTTL` that an hour of the key's day is over.
/// let marker = AgeMarker::read(b"5000", 23 * 3_600_000).expect("it was written like this");
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
pub struct AgeMarker {
    /// The age at which it was written, in milliseconds.
    written_at_age: u64,
    /// How long ago that was, in milliseconds.
    passed: u64,
}

impl AgeMarker {
    /// The time to live that the key is written with, in milliseconds: a day.
    pub const TTL_MILLIS: u64 = 86_400_000;

    /// Returns the name of the key for a history: `redlock:since:` and the id.
    #[must_use]
    pub fn key_of_history(history: ReplicationId) -> String {
        format!("redlock:since:{history}")
    }

    /// Returns the name of the key for a tenure: `redlock:owner:`, the owner, `:` and the epoch.
    #[must_use]
    pub fn key_of_tenure(tenure: &Tenure) -> String {
        let Tenure { owner, epoch } = tenure;
        format!("redlock:owner:{owner}:{epoch}")
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
    use crate::Owner;

    const HOUR: u64 = 3_600_000;

    fn read(value: &str, hours_left: u64) -> AgeMarker {
        AgeMarker::read(value.as_bytes(), (hours_left * HOUR) as i64).unwrap()
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
        let renewed = AgeMarker::read(
            format!("{renewal}").as_bytes(),
            AgeMarker::TTL_MILLIS as i64,
        );
        assert_eq!(renewed.unwrap().age(), old.age());
        assert_eq!(renewed.unwrap().renewal(), None);
    }

    #[test]
    fn the_key_is_named_after_what_it_tells_the_age_of() {
        let history = ReplicationId::new([b'7'; ReplicationId::LEN]);
        assert!(AgeMarker::key_of_history(history).starts_with("redlock:since:7777"));
        let owner = Owner::new("10.0.0.1:6379");
        let tenure = Tenure { owner, epoch: 12 };
        let key = "redlock:owner:10.0.0.1:6379:12";
        assert_eq!(AgeMarker::key_of_tenure(&tenure), key);
    }
}
