use core::time::Duration;

use crate::{Drift, Ttl};

/// How long a confirmation of an owner counts, and how long an owner must have been confirmed before it votes.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Drift, OwnerRule, Ttl, TtlError};
///
/// let second = Duration::from_secs(1);
/// let drift = Drift::new(10, Duration::ZERO);
/// let rule = OwnerRule::new(Ttl::new(10 * second)?, drift, 3 * second);
/// assert_eq!(rule.settling(), Duration::from_millis(13_130));
/// # Ok::<(), TtlError>(())
/// ```
///
/// An [`Electorate`](crate::Electorate) has a *watch* for each node whose master an authority names: the sentinels of a
/// group, or the nodes of a cluster. The watch decides which server is the owner of the node, and when its votes count.
///
/// A failover loses the keys that had not reached the replica. So the new owner must not vote until every
/// lock that the old owner voted for is over, and the old owner must stop in time. No server tells the
/// two apart: an old master that is cut off accepts writes for as long as the partition lasts. The
/// authority does, by these rules:
///
/// - A server is *confirmed* when a majority of **all** members of the authority reports the same
///   [`Tenure`](crate::Tenure). The confirmation is dated when the oldest of these reports was *asked* for.
/// - A vote counts if its round started at most one *window* after a confirmation.
/// - A vote counts if its round started at least one *settling time* after the first confirmation of the
///   tenure. That is the longest ttl, one window and the drift allowance.
///
/// The members count as the answering members know each other, not as they are listed in a configuration:
/// two clients with different lists could both have a majority of their list. In a cluster the members are
/// all nodes, including replicas: a majority of the masters alone changes with the failover.
///
/// All clients must use the same window and the same longest ttl.
///
/// # Why two owners never vote for two locks
///
/// Let client C count a vote of tenure X, and client D a vote of a later tenure Y, in rounds that start at
/// `c` and `d`.
///
/// 1. C had a confirmation of X that is dated `c - window` or later. So each member of a majority still
///    reported X at that date or later.
/// 2. D knows a time `since` by which each member of another majority had turned to Y, and `d` is a settling
///    time after that. It does not matter how D knows: by its own watch, by the ages that the members reported,
///    or by a marker of another client that had a confirmation.
/// 3. The two majorities share a member. That member reported X before it turned to Y, and never turned
///    back. So `c - window` is before `since`.
/// 4. The lock of C is over at `c + ttl`, before `since + window + ttl`, and so before `d`.
///
/// Nothing in this depends on the connections, on the order of the reports, on how late a report or a
/// request arrives, or on how often the authority could not be reached between two confirmations. Nor does
/// it depend on the numbers: epochs only tell two tenures of one server apart.
///
/// # Why the rule needs a voter beside it
///
/// The rule keeps two *tenures* apart. Within one tenure, the server must keep its keys, and the
/// [`Voter`](crate::Voter) sees to that. A master that becomes a replica and the master again within one
/// window has lost keys, and a client may still have a confirmation of its first tenure. The history of the
/// server shows that it was promoted again. So an [`Electorate`](crate::Electorate) looks at the history of
/// each server that an authority names, even if nodes are [durable](crate::Voter::durable).
///
/// # Rules for the members
///
/// - A member never goes back to a tenure that it has left. A restart does not change that, since the epoch
///   is on disk. A member that was restored from an old backup breaks this.
/// - The members know each other, and change one at a time. [`with_fewest_members`](Self::with_fewest_members) helps
///   where one of them has forgotten the others.
/// - An [age](crate::MemberReport::age) is the age of the tenure. How long a server has been a master is no such
///   age: it may have been a replica for a moment.
///
/// # Two authorities
///
/// An address can lead to a member of another authority. If members of both were counted together, clients would
/// follow the larger authority, and clients with other addresses would stay in the smaller one. So only members
/// count together that know each other: each lists the other, or both know the same one in this way. If two such
/// circles name different servers, nothing is confirmed, and the watch reports the [`Rivals`](crate::Rivals).
///
/// A watch that has confirmed an owner stays with that authority. It recognises the authority if more than half of the
/// members are the same as at the last confirmation, or if the owner is the same. Without one of these, another
/// authority is not followed, even if nobody else answers.
///
/// A watch without an owner follows whichever authority agrees. So the order of the reports must not decide:
///
/// - It confirms an owner only at the end of a [roll call](crate::Electorate::handle_roll_call), which comes after one
///   report from each configured address that answers. If the addresses lead to two authorities, both are known by
///   then, however the reports were ordered. After an interruption the old reports are forgotten, and the next roll
///   call decides again.
/// - An address may answer after all, when it was taken as silent. If it shows a rival within one window of the first
///   confirmation, the watch gives up the owner. An answer to a question from before that confirmation comes in this
///   time, or is too old to count.
///
/// From then on the watch belongs to its authority, and a rival only keeps it from confirming again. One stale report
/// does that for one window at most, and takes no owner away. A failover is no rivalry: the old and the new owner are
/// named by members of one circle.
///
/// One case is left. If no address of the right authority answers during the roll call, or only a member that has lost
/// its state and knows no other, the watch follows the other authority. A vote may then count before the first answer
/// of the right one comes, and none counts after it, until the process starts again.
///
/// # Epochs that begin anew
///
/// A group of sentinels can be told to watch another server, and then the first one again, all in one epoch. Then two
/// tenures of the first server look the same. So the watch of a [sentinel group](crate::NodeKind::SentinelGroup) begins
/// anew if a tenure was not confirmed for the longest ttl and the drift allowance: in a shorter time, no other server
/// can have settled and voted. It believes no markers, only the ages that members report.
///
/// The nodes of a cluster have epochs that last: a node whose epoch begins anew has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRule {
    window: Duration,
    settling: Duration,
    fewest_members: usize,
}

impl OwnerRule {
    /// The window unless another is chosen: 3 s.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(3);

    /// Creates the rule for locks whose ttl is at most `max_ttl`. A confirmation counts for `window`.
    ///
    /// All clients must use the same window and the same longest ttl. A client waits for as long as its own
    /// rule says, and that must cover the window and the ttl of each other client. The window may be longer
    /// than a ttl. But a longer window makes the outage after a failover longer.
    #[must_use]
    pub fn new(max_ttl: Ttl, drift: Drift, window: Duration) -> Self {
        let settling = max_ttl.as_duration().saturating_add(window);
        // The allowance is for the whole time.
        let allowance = drift.allowance(Ttl::at_least(settling));
        Self {
            window,
            settling: settling.saturating_add(allowance),
            fewest_members: 1,
        }
    }

    /// Counts an authority as one of at least this many members, even while the members that answer know
    /// fewer.
    ///
    /// A sentinel that has lost its state knows no other sentinel, and names the master of its
    /// configuration. Without this method it would be a majority of itself for a client that reaches no
    /// other. Pass the number of the sentinels that are listed. If the list is longer than the group, more
    /// members must agree.
    #[must_use]
    pub const fn with_fewest_members(self, members: usize) -> Self {
        Self {
            fewest_members: members,
            ..self
        }
    }

    /// Lets an owner vote as soon as it is confirmed. For servers whose failovers
    /// [lose nothing](crate::Voter::lossless), and for tests: another owner may lack locks.
    #[must_use]
    pub const fn without_settling(self) -> Self {
        Self {
            settling: Duration::ZERO,
            ..self
        }
    }

    /// Returns how long a confirmation counts.
    #[must_use]
    pub const fn window(self) -> Duration {
        self.window
    }

    /// Returns for how long an owner must have been confirmed before its votes count: the longest ttl, one
    /// window, and the drift allowance for both.
    #[must_use]
    pub const fn settling(self) -> Duration {
        self.settling
    }

    /// Returns the shortest time in which another owner can have settled, voted, and been replaced again while a
    /// confirmation of it still counted: the longest ttl and the drift allowance. Endless if nobody settles.
    pub(crate) const fn longest_gap(self) -> Duration {
        if self.settling.is_zero() {
            return Duration::MAX;
        }
        self.settling.saturating_sub(self.window)
    }

    /// Returns how many of this number of members are a majority.
    pub(crate) fn majority(self, members: usize) -> usize {
        members.max(self.fewest_members) / 2 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn settling_covers_the_longest_ttl_the_window_and_the_drift_of_both() {
        let drift = Drift::new(10, Duration::from_millis(2));
        let rule = OwnerRule::new(Ttl::new(10 * SECOND).unwrap(), drift, 2 * SECOND);
        assert_eq!(rule.window(), 2 * SECOND);
        assert_eq!(rule.settling(), Duration::from_millis(12_000 + 120 + 2));
    }

    #[test]
    fn a_majority_is_more_than_half_of_at_least_the_fewest_members() {
        let rule = OwnerRule::new(Ttl::MAX, Drift::default(), SECOND);
        let majorities = |rule: OwnerRule| [1, 2, 3, 4, 5].map(|members| rule.majority(members));
        assert_eq!(majorities(rule), [1, 2, 2, 3, 3]);
        assert_eq!(majorities(rule.with_fewest_members(3)), [2, 2, 2, 3, 3]);
    }
}
