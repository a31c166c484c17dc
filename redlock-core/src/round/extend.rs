use super::{Round, Rules};
use crate::{Quorum, Timestamp, Validity, tally::Tally};

/// One attempt to lengthen the life of our keys on a majority of nodes.
///
/// The caller sends a compare-and-`PEXPIRE` to every node at once. Only nodes that still hold our
/// token vote, and a majority of *all* nodes is needed, within the validity that is being
/// extended: "the client should only consider the lock re-acquired if it was able to extend the
/// lock into the majority of instances, and within the validity time" (the Redlock page).
///
/// A failed extension takes nothing away: the validity stays what it was, and nothing is released.
pub(crate) type Extend = Round<ExtendRules>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExtendRules {
    old_valid_until: Timestamp,
    new_valid_until: Timestamp,
}

impl Extend {
    /// Starts an extension at `now`, which must be read *before* the first request leaves, of a
    /// lock that is valid until `valid_until`.
    pub(crate) fn new(
        quorum: Quorum,
        validity: Validity,
        valid_until: Timestamp,
        now: Timestamp,
    ) -> Self {
        let rules = ExtendRules {
            old_valid_until: valid_until,
            // Raise-only: an extension never shortens.
            new_valid_until: validity.until(now).max(valid_until),
        };
        Self::with_rules(rules, quorum, now)
    }
}

impl Rules for ExtendRules {
    type Verdict = ExtendVerdict;

    fn judge(&self, tally: &Tally, now: Timestamp) -> Option<ExtendVerdict> {
        if tally.is_quorum(tally.granted) {
            return Some(if now < self.old_valid_until {
                ExtendVerdict::Extended {
                    valid_until: self.new_valid_until,
                }
            } else {
                ExtendVerdict::Failed
            });
        }
        let against = tally
            .failed
            .union(tally.quarantined)
            .union(tally.outbid)
            .union(tally.denied);
        if tally.is_blocking(tally.denied) {
            Some(ExtendVerdict::KeysLost)
        } else if tally.is_blocking(against) {
            Some(ExtendVerdict::Failed)
        } else {
            None
        }
    }
}

/// The end of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ExtendVerdict {
    /// A majority extended our key.
    Extended {
        /// The new end of validity, never earlier than the old one.
        valid_until: Timestamp,
    },
    /// No majority extended our key this time. The old validity still holds, so try again.
    Failed,
    /// So many nodes say that the key is not ours any more that no majority has it: it was deleted,
    /// overwritten, evicted or flushed. The lock is lost now, whatever the clock says, because another
    /// client may already hold it.
    KeysLost,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Eligibility, Reply, Ttl, said::node};
    use core::time::Duration;

    #[test]
    fn fails_once_the_old_validity_is_over() {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let validity = Validity::new(ttl, Drift::default()).unwrap();
        let until = Timestamp::from_nanos(5);
        let quorum = Quorum::majority(1).unwrap();
        let mut round = Extend::new(quorum, validity, until, Timestamp::ZERO);
        let verdict = round.handle_reply(until, node(0), Reply::Granted, Eligibility::ALWAYS);
        assert_eq!(verdict, Some(ExtendVerdict::Failed));
    }
}
