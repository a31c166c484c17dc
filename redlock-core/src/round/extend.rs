use crate::{
    Eligibility, NodeId, NodeSet, Quorum, Reply, Timestamp, Validity, ballot::Ballot, tally::Tally,
};

/// One attempt to lengthen the life of our keys on a majority of nodes.
///
/// The caller sends a compare-and-`PEXPIRE` to every node at once. Only nodes that still hold our
/// token vote, and a majority of *all* nodes is needed, within the validity that is being
/// extended: "the client should only consider the lock re-acquired if it was able to extend the
/// lock into the majority of instances, and within the validity time" (the Redlock page).
///
/// A failed extension takes nothing away: the validity stays what it was, and nothing is released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extend {
    start: Timestamp,
    old_valid_until: Timestamp,
    new_valid_until: Timestamp,
    ballot: Ballot<ExtendVerdict>,
}

impl Extend {
    /// Starts an extension at `now`, which must be read *before* the first request leaves, of a
    /// lock that is valid until `valid_until`.
    #[must_use]
    pub(crate) fn new(
        quorum: Quorum,
        validity: Validity,
        valid_until: Timestamp,
        now: Timestamp,
    ) -> Self {
        Self {
            start: now,
            old_valid_until: valid_until,
            // Raise-only: an extension never shortens.
            new_valid_until: validity.until(now).max(valid_until),
            ballot: Ballot::new(quorum, now),
        }
    }

    /// Counts a node's reply, by what the node's votes are worth. Returns the verdict once, with the
    /// reply that makes it certain.
    pub(crate) fn handle_reply(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) -> Option<ExtendVerdict> {
        let (old, new) = (self.old_valid_until, self.new_valid_until);
        self.ballot
            .handle_reply(now, node, reply, eligibility, |tally| {
                judge(tally, now, old, new)
            })
    }

    /// Takes back a node's vote in this round, if it gave one. Returns the verdict if that makes it
    /// certain.
    pub(crate) fn withdraw(
        &mut self,
        now: Timestamp,
        node: NodeId,
        eligibility: Eligibility,
    ) -> Option<ExtendVerdict> {
        let (old, new) = (self.old_valid_until, self.new_valid_until);
        self.ballot
            .withdraw(node, eligibility, |tally| judge(tally, now, old, new))
    }

    /// Returns when the extension started.
    #[must_use]
    pub(crate) const fn start(&self) -> Timestamp {
        self.start
    }

    /// Returns the end of the validity that is being extended.
    pub(crate) const fn old_valid_until(&self) -> Timestamp {
        self.old_valid_until
    }

    /// Returns the replies so far.
    #[must_use]
    pub(crate) const fn tally(&self) -> &Tally {
        self.ballot.tally()
    }

    /// Returns the nodes that are known to have lost our key.
    #[must_use]
    pub(crate) const fn lost_on(&self) -> NodeSet {
        self.tally().denied()
    }
}

fn judge(
    tally: &Tally,
    now: Timestamp,
    old_valid_until: Timestamp,
    new_valid_until: Timestamp,
) -> Option<ExtendVerdict> {
    if tally.is_quorum(tally.granted()) {
        return Some(if now < old_valid_until {
            ExtendVerdict::Extended {
                valid_until: new_valid_until,
            }
        } else {
            ExtendVerdict::Failed
        });
    }
    let against = tally
        .failed()
        .union(tally.quarantined())
        .union(tally.outbid())
        .union(tally.denied());
    if is_lost(tally) {
        Some(ExtendVerdict::KeysLost)
    } else if tally.is_blocking(against) {
        Some(ExtendVerdict::Failed)
    } else {
        None
    }
}

const fn is_lost(tally: &Tally) -> bool {
    tally.is_blocking(tally.denied())
}

/// The end of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    use crate::{
        Drift, Ttl,
        said::{Said, quarantined},
    };
    use core::time::Duration;

    use Reply::{Denied, Granted, Refused, Unknown};

    const VALID_UNTIL: Timestamp = Timestamp::from_nanos(5_000_000_000);
    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

    fn round(ttl_secs: u64) -> Extend {
        let ttl = Ttl::new(Duration::from_secs(ttl_secs)).unwrap();
        let validity = Validity::new(ttl, Drift::new(0, Duration::ZERO)).unwrap();
        let quorum = Quorum::majority(5).unwrap();
        Extend::new(quorum, validity, VALID_UNTIL, NOW)
    }

    fn verdict<R: Into<Said> + Copy>(
        mut round: Extend,
        now: Timestamp,
        replies: &[R],
    ) -> Option<ExtendVerdict> {
        replies.iter().enumerate().find_map(|(index, reply)| {
            let Said { reply, eligibility } = (*reply).into();
            round.handle_reply(now, NodeId::new(index).unwrap(), reply, eligibility)
        })
    }

    #[test]
    fn extended_by_a_majority_of_all_nodes() {
        let majority = [Granted, Denied, Granted, Unknown, Granted];
        let valid_until = Timestamp::from_nanos(11_000_000_000);
        assert_eq!(
            verdict(round(10), NOW, &majority),
            Some(ExtendVerdict::Extended { valid_until })
        );
        assert_eq!(verdict(round(10), NOW, &[Granted, Granted]), None);
    }

    #[test]
    fn never_shortens() {
        assert_eq!(
            verdict(round(1), NOW, &[Granted; 3]),
            Some(ExtendVerdict::Extended {
                valid_until: VALID_UNTIL
            })
        );
    }

    #[test]
    fn fails_once_the_old_validity_is_over() {
        assert_eq!(
            verdict(round(10), VALID_UNTIL, &[Granted; 3]),
            Some(ExtendVerdict::Failed)
        );
    }

    #[test]
    fn failing_nodes_are_a_failure_and_missing_keys_are_a_loss() {
        let failed = [Unknown, Refused, Unknown];
        assert_eq!(
            verdict(round(10), NOW, &failed),
            Some(ExtendVerdict::Failed)
        );
        let mixed = [Denied, Denied, Unknown];
        assert_eq!(verdict(round(10), NOW, &mixed), Some(ExtendVerdict::Failed));
        let lost = [Denied, Granted, Denied, Granted, Denied];
        assert_eq!(
            verdict(round(10), NOW, &lost),
            Some(ExtendVerdict::KeysLost)
        );
    }

    #[test]
    fn nodes_in_quarantine_have_no_vote() {
        // Gating SET alone is not enough: a late SET may have put our key on a node that has
        // forgotten another's.
        let until = Timestamp::from_nanos(NOW.as_nanos() + 1);
        let held_back = quarantined(Granted, until);
        let granted = Said::from(Granted);
        let replies = [granted, granted, held_back, held_back, held_back];
        assert_eq!(
            verdict(round(10), NOW, &replies),
            Some(ExtendVerdict::Failed)
        );
        let over = quarantined(Granted, NOW);
        let replies = [granted, over, over];
        let verdict = verdict(round(10), NOW, &replies);
        assert!(matches!(verdict, Some(ExtendVerdict::Extended { .. })));
    }

    #[test]
    fn the_verdict_is_given_once_but_late_losses_are_recorded() {
        let mut round = round(10);
        for index in 0..3 {
            let node = NodeId::new(index).unwrap();
            round.handle_reply(NOW, node, Granted, Eligibility::ALWAYS);
        }
        let last = NodeId::new(4).unwrap();
        let late = round.handle_reply(NOW, last, Denied, Eligibility::ALWAYS);
        assert_eq!(late, None);
        assert!(round.lost_on().contains(last));
    }
}
