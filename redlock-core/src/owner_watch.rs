use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use crate::{Eligibility, MemberId, OwnerRule, Tenure, Timestamp};

/// Decides which server is the owner of a node, and when its votes count, where an authority names the
/// master: the sentinels of a group, or the nodes of a cluster.
///
/// A failover loses the keys that had not reached the replica. So the new owner must not vote until every
/// lock that the old owner voted for is over, and the old owner must stop in time. No server tells the
/// two apart: an old master that is cut off accepts writes for as long as the partition lasts. The
/// authority does, by these rules:
///
/// - A server is *confirmed* when a majority of **all** members of the authority reports the same
///   [`Tenure`]. The confirmation is dated when the oldest of these reports was *asked* for.
/// - A vote counts if its round started at most one *window* after a confirmation.
/// - A vote counts if its round started at least one *settling time* after the first confirmation of the
///   tenure. That is the longest ttl, one window and the drift allowance.
///
/// The members count as the answering members know each other, not as they are listed in a configuration:
/// two clients with different lists could both have a majority of their list. In a cluster the members are
/// all nodes, with the replicas: a majority of the masters alone changes with the failover.
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
///    time after that. It does not matter how D knows: by its own watch, by the ages that the members told,
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
/// each server that an authority names, also if nodes are [durable](crate::Voter::durable).
///
/// # What the members must keep to
///
/// - A member never goes back to a tenure that it has left. A restart does not change that, since the epoch
///   is on disk. A member that was restored from an old backup breaks this.
/// - The members know each other, and change one at a time. [`OwnerRule::with_fewest_members`] helps where
///   one of them has forgotten the others.
/// - An [age](MemberReport::age) is the age of the tenure. How long a server has been a master is no such
///   age: it may have been a replica for a moment.
/// - Epochs do not begin anew. A watch that sees an epoch go back ignores markers from then on, since they
///   may be from the earlier life of the authority. But a client that starts later believes them. After an
///   authority was set up anew, keep clients away for one settling time, or delete the markers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerWatch {
    rule: OwnerRule,
    /// The last report of each member that answers.
    reports: BTreeMap<MemberId, MemberReport>,
    /// Each member that an answering one knows, and how many of them know it. It changes with each list, since the
    /// lists of a thousand members have a million entries.
    known: BTreeMap<MemberId, usize>,
    current: Option<Confirmed>,
    /// The latest time that came with a report. Times may come out of order, since a driver may read the
    /// clock before it waits for access to the watch.
    latest: Timestamp,
}

/// What one member of an authority says about one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberReport {
    /// When the member was asked. Read *before* the question left.
    pub asked_at: Timestamp,
    /// The member.
    pub member: MemberId,
    /// The members of the authority that this member knows. It may list itself or not.
    pub members: Vec<MemberId>,
    /// The server that is the owner by the member's word, or `None` if it names none.
    pub tenure: Option<Tenure>,
    /// For how long the member has known this tenure, at least. Zero if it does not say.
    pub age: Duration,
}

/// The tenure that was confirmed last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Confirmed {
    tenure: Tenure,
    /// A time by which a majority had reported the tenure.
    since: Timestamp,
    /// The date of the last confirmation.
    at: Timestamp,
    /// Whether the tenure before had a later epoch.
    is_epoch_back: bool,
}

/// What the reports agree on.
struct Agreement {
    tenure: Tenure,
    /// Each of a majority was asked then or later.
    at: Timestamp,
    /// Each of a majority has known the tenure for so long.
    age: Duration,
}

impl OwnerWatch {
    /// Creates a watch that has heard of no server.
    #[must_use]
    pub const fn new(rule: OwnerRule) -> Self {
        Self {
            rule,
            reports: BTreeMap::new(),
            known: BTreeMap::new(),
            current: None,
            latest: Timestamp::ZERO,
        }
    }

    /// Takes the report of a member. `now` must be read *after* the report came. Returns whether another
    /// tenure was confirmed: connections to the earlier owner are of no use any more.
    ///
    /// Reports may come late and in any order. A report that is older than one window changes nothing.
    pub fn handle_report(&mut self, now: Timestamp, mut report: MemberReport) -> bool {
        self.latest = self.latest.max(now);
        // So that most members report equal lists.
        report.members.push(report.member);
        report.members.sort_unstable();
        report.members.dedup();
        self.note(report);
        self.forget_old_reports();
        self.agreement().is_some_and(|it| self.confirm(it))
    }

    /// Notes that some client had a confirmation of this tenure `age` ago, by a [marker](crate::AgeMarker)
    /// on its owner. `now` must be read *after* the answer came.
    pub fn handle_marker(&mut self, now: Timestamp, tenure: &Tenure, age: Duration) {
        if let Some(current) = &mut self.current
            && current.tenure == *tenure
            && !current.is_epoch_back
        {
            current.since = current.since.min(now.saturating_sub(age));
        }
    }

    /// Returns the tenure that was confirmed last: the server to connect to.
    #[must_use]
    pub fn tenure(&self) -> Option<&Tenure> {
        self.current.as_ref().map(|current| &current.tenure)
    }

    /// Returns what the votes of a server are worth that was connected to in this tenure.
    #[must_use]
    pub fn eligibility(&self, connected: &Tenure) -> Eligibility {
        match &self.current {
            Some(current) if current.tenure == *connected => {
                Eligibility::since(current.since.saturating_add(self.rule.settling()))
                    .until(current.at.saturating_add(self.rule.window()))
            }
            _ => Eligibility::NEVER,
        }
    }

    /// Keeps the report, unless there is a newer one of its member.
    fn note(&mut self, report: MemberReport) {
        let last = self.reports.get(&report.member);
        if last.is_some_and(|last| report.asked_at < last.asked_at) {
            return;
        }
        let is_same = last.is_some_and(|last| last.members == report.members);
        if !is_same {
            for member in &report.members {
                *self.known.entry(*member).or_default() += 1;
            }
        }
        let last = self.reports.insert(report.member, report);
        if let Some(last) = last.filter(|_| !is_same) {
            forget(&mut self.known, &last.members);
        }
    }

    fn forget_old_reports(&mut self) {
        let Self {
            rule,
            reports,
            known,
            latest,
            ..
        } = self;
        reports.retain(|_, report| {
            let counts = *latest <= report.asked_at.saturating_add(rule.window());
            if !counts {
                forget(known, &report.members);
            }
            counts
        });
    }

    /// Notes a confirmation. Returns whether it is the first one of its tenure.
    fn confirm(&mut self, Agreement { tenure, at, age }: Agreement) -> bool {
        let since = self.latest.saturating_sub(age);
        match &mut self.current {
            Some(current) if current.tenure == tenure => {
                current.at = current.at.max(at);
                current.since = current.since.min(since);
                false
            }
            current => {
                let is_back = |before: &Confirmed| before.tenure.epoch > tenure.epoch;
                *current = Some(Confirmed {
                    is_epoch_back: current.as_ref().is_some_and(is_back),
                    tenure,
                    since,
                    at,
                });
                true
            }
        }
    }

    /// Returns what a majority of all members reports.
    fn agreement(&self) -> Option<Agreement> {
        let majority = self.rule.majority(self.known.len());
        let reports = self.reports.values();
        let mut votes = BTreeMap::<_, usize>::new();
        for tenure in reports.clone().filter_map(|it| it.tenure.as_ref()) {
            *votes.entry(tenure).or_default() += 1;
        }
        let (tenure, _) = votes.into_iter().find(|(_, votes)| *votes >= majority)?;
        let agreeing = reports.filter(|it| it.tenure.as_ref() == Some(tenure));
        let mut asked: Vec<_> = agreeing.clone().map(|it| it.asked_at).collect();
        let mut ages: Vec<_> = agreeing.map(|it| it.age).collect();
        // The latest, and the oldest, that a majority has in common.
        let (_, at, _) = asked.select_nth_unstable_by(majority - 1, |a, b| b.cmp(a));
        let (_, age, _) = ages.select_nth_unstable_by(majority - 1, |a, b| b.cmp(a));
        Some(Agreement {
            tenure: tenure.clone(),
            at: *at,
            age: *age,
        })
    }
}

/// Takes back that one member knows these.
fn forget(known: &mut BTreeMap<MemberId, usize>, members: &[MemberId]) {
    for member in members {
        if let Some(count) = known.get_mut(member) {
            *count -= 1;
            if *count == 0 {
                known.remove(member);
            }
        }
    }
}

#[cfg(test)]
mod tests;
