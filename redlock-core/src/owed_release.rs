use crate::{Reply, Timestamp, Ttl};

/// The fate of the requests to set the key of one lease on one node.
///
/// The driver notes this for each lease and each node, from the first attempt to the end of the
/// lease. Only the requests with the token of a release matter to it. If requests of other attempts
/// count too, releases are sent again without need, and do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetRequestState {
    /// None was sent, so the node cannot hold the key.
    NeverSent,
    /// One was sent at least. A release that is sent now arrives after each of them.
    Sent,
    /// A connection broke before one of them was answered. That request may arrive after a release
    /// that is sent on the next connection.
    Unanswered,
}

/// A release that one node is still owed: the node may hold our key, or may set it yet.
///
/// Such a key blocks the other clients until it expires. So the driver sends the release again and
/// again, and passes each reply to this type. The driver chooses when to send. This type decides until
/// when.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{OwedRelease, Reply, SetRequestState::Sent, Timestamp, Ttl};
///
/// let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
/// let now = Timestamp::ZERO;
/// let owed = OwedRelease::after_first(now, ttl, Sent, Reply::Unknown).expect("nobody knows");
/// assert!(!owed.has_expired(now));
/// assert_eq!(owed.after_next(Sent, Reply::Granted), None, "the node has deleted the key");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwedRelease {
    expires_at: Timestamp,
    was_delivered: bool,
}

impl OwedRelease {
    /// Takes the reply to the first release of a token. Returns the release if the node is still
    /// owed it, or `None` if it is settled.
    ///
    /// If the release was not sent, the reply is [`Reply::Refused`]. `now` must be read *after* the
    /// reply came. A request that left earlier may have set or extended the key until then, and the
    /// key lives for the ttl from there.
    #[must_use]
    pub fn after_first(
        now: Timestamp,
        ttl: Ttl,
        requests: SetRequestState,
        reply: Reply,
    ) -> Option<Self> {
        let owed = Self {
            expires_at: now.saturating_add(ttl.as_duration()),
            was_delivered: false,
        };
        owed.after_next(requests, reply)
    }

    /// Takes the reply to this release, which was sent again. Returns the release if the node is
    /// still owed it, or `None` if it is settled.
    ///
    /// It is owed no longer than it was: after a release the driver sends no request for this token
    /// that could set or extend the key.
    #[must_use]
    pub fn after_next(mut self, requests: SetRequestState, reply: Reply) -> Option<Self> {
        self.was_delivered |= match reply {
            Reply::Refused | Reply::Unknown => false,
            Reply::Granted
            | Reply::Denied
            | Reply::Outbid { .. }
            | Reply::Free
            | Reply::Taken { .. }
            | Reply::Marked { .. }
            | Reply::Slots { .. } => true,
        };
        let is_settled = match (requests, reply) {
            (SetRequestState::NeverSent, _) | (_, Reply::Granted) => true,
            // The node does not have the key, and nothing can set it any more.
            (SetRequestState::Sent, Reply::Denied) => true,
            (SetRequestState::Sent | SetRequestState::Unanswered, _) => false,
        };
        (!is_settled).then_some(self)
    }

    /// Returns whether the key has expired by itself, so that the release need not be sent any more.
    #[must_use]
    pub fn has_expired(self, now: Timestamp) -> bool {
        self.expires_at <= now
    }

    /// Returns whether the node has answered the release before. It is then owed again only because
    /// the key may still appear.
    #[must_use]
    pub const fn was_delivered(self) -> bool {
        self.was_delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SetRequestState::{NeverSent, Sent, Unanswered};
    use core::time::Duration;

    fn first(requests: SetRequestState, reply: Reply) -> Option<OwedRelease> {
        let ttl = Ttl::new(Duration::from_nanos(7_000_000)).unwrap();
        OwedRelease::after_first(Timestamp::from_nanos(100), ttl, requests, reply)
    }

    #[test]
    fn a_release_is_settled_when_the_node_cannot_have_the_key_any_more() {
        use Reply::{Denied, Granted, Refused, Unknown};
        for reply in [Granted, Denied, Refused, Unknown] {
            assert_eq!(first(NeverSent, reply), None, "{reply:?}");
        }
        for requests in [Sent, Unanswered] {
            assert_eq!(first(requests, Granted), None, "{requests:?}");
        }
        assert_eq!(first(Sent, Denied), None);
    }

    #[test]
    fn a_release_without_an_answer_is_owed() {
        for requests in [Sent, Unanswered] {
            for reply in [Reply::Refused, Reply::Unknown] {
                let owed = first(requests, reply).expect("the node may hold the key");
                assert!(!owed.was_delivered());
            }
        }
    }

    #[test]
    fn a_release_that_found_nothing_is_owed_while_the_key_may_appear() {
        let owed = first(Unanswered, Reply::Denied).expect("the key may appear");
        assert!(owed.was_delivered());
        let owed = owed.after_next(Unanswered, Reply::Unknown);
        let owed = owed.expect("the key may still appear");
        assert!(owed.was_delivered(), "it was delivered once");
        assert_eq!(owed.after_next(Unanswered, Reply::Granted), None);
    }

    #[test]
    fn a_request_that_becomes_unanswered_counts_for_a_release_that_is_owed() {
        let owed = first(Sent, Reply::Unknown).expect("nobody knows");
        assert!(owed.after_next(Sent, Reply::Denied).is_none());
        assert!(owed.after_next(Unanswered, Reply::Denied).is_some());
    }

    #[test]
    fn an_answer_that_makes_no_sense_settles_nothing() {
        let until = Timestamp::ZERO;
        for reply in [Reply::Free, Reply::Taken { until }] {
            let owed = first(Sent, reply).expect("the release was not carried out");
            assert!(owed.was_delivered());
        }
    }

    #[test]
    fn a_release_is_owed_until_the_key_has_expired() {
        let owed = first(Sent, Reply::Unknown).expect("nobody knows");
        let later = owed.after_next(Sent, Reply::Unknown);
        let later = later.expect("nobody knows");
        for owed in [owed, later] {
            assert!(!owed.has_expired(Timestamp::from_nanos(7_000_099)));
            assert!(owed.has_expired(Timestamp::from_nanos(7_000_100)));
        }
    }
}
