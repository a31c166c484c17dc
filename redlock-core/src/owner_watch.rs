use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::{fmt, time::Duration};

use crate::{Drift, Eligibility, MemberId, Timestamp, Ttl};

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
/// - A vote counts if its round started at least the longest ttl, one window and the drift allowance
///   after the first confirmation of the tenure.
///
/// Two majorities share a member, and a member only turns to later tenures. So the last vote of the old
/// owner was sent at most one window after that member turned, and its lock is over before the first vote
/// of the new owner counts.
///
/// The members count as the answering members know each other, not as they are listed in a configuration:
/// two clients with different lists could both have a majority of their list. In a cluster the members are
/// all nodes, with the replicas: a majority of the masters alone changes with the failover.
///
/// All clients must use the same window and the same longest ttl.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerWatch {
    rule: OwnerRule,
    /// The last report of each member that answers.
    reports: BTreeMap<MemberId, MemberReport>,
    current: Option<Confirmed>,
}

/// How long a confirmation counts, and how long an owner must have been confirmed before it votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRule {
    window: Duration,
    settling: Duration,
}

/// The name of a server in the reports of an authority, such as its address or its node id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

/// The time of one server as the owner of a node, from one failover to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The server.
    pub owner: Owner,
    /// The authority's number of the failover that made the server the owner. It grows with each failover.
    pub epoch: u64,
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
}

impl OwnerWatch {
    /// Creates a watch that has heard of no server.
    #[must_use]
    pub const fn new(rule: OwnerRule) -> Self {
        Self {
            rule,
            reports: BTreeMap::new(),
            current: None,
        }
    }

    /// Takes the report of a member. `now` must be read *after* the report came. Returns whether another
    /// tenure was confirmed: connections to the earlier owner are of no use any more.
    pub fn handle_report(&mut self, now: Timestamp, report: MemberReport) -> bool {
        let is_newer = |last: &MemberReport| last.asked_at <= report.asked_at;
        if self.reports.get(&report.member).is_none_or(is_newer) {
            self.reports.insert(report.member, report);
        }
        let window = self.rule.window;
        self.reports
            .retain(|_, it| now <= it.asked_at.saturating_add(window));
        let Some((tenure, at, age)) = self.confirmation() else {
            return false;
        };
        let since = now.saturating_sub(age);
        match &mut self.current {
            Some(current) if current.tenure == tenure => {
                current.at = current.at.max(at);
                current.since = current.since.min(since);
                false
            }
            current => {
                *current = Some(Confirmed { tenure, since, at });
                true
            }
        }
    }

    /// Notes that some client had a confirmation of this tenure `age` ago, by a [marker](crate::AgeMarker)
    /// on its owner. `now` must be read *after* the answer came.
    pub fn handle_marker(&mut self, now: Timestamp, tenure: &Tenure, age: Duration) {
        if let Some(current) = &mut self.current
            && current.tenure == *tenure
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
                Eligibility::since(current.since.saturating_add(self.rule.settling))
                    .until(current.at.saturating_add(self.rule.window))
            }
            _ => Eligibility::NEVER,
        }
    }

    /// Returns the tenure that a majority of all members reports, the date of this confirmation, and for
    /// how long each of that majority has known the tenure.
    fn confirmation(&self) -> Option<(Tenure, Timestamp, Duration)> {
        let reports = self.reports.values();
        let all: BTreeSet<_> = reports
            .clone()
            .flat_map(|it| it.members.iter().chain([&it.member]))
            .collect();
        let majority = all.len() / 2 + 1;
        let named = reports.clone().filter_map(|it| it.tenure.as_ref());
        let tenure = named.clone().find(|tenure| {
            let same = |other: &&Tenure| other == tenure;
            named.clone().filter(same).count() >= majority
        })?;
        let agreeing = reports.filter(|it| it.tenure.as_ref() == Some(tenure));
        let mut asked: Vec<_> = agreeing.clone().map(|it| it.asked_at).collect();
        let mut ages: Vec<_> = agreeing.map(|it| it.age).collect();
        // The latest, and the oldest, that a majority has in common.
        asked.sort_unstable_by(|a, b| b.cmp(a));
        ages.sort_unstable_by(|a, b| b.cmp(a));
        Some((tenure.clone(), asked[majority - 1], ages[majority - 1]))
    }
}

impl OwnerRule {
    /// The window unless another is chosen: 3 s.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(3);

    /// Creates the rule for locks whose ttl is at most `max_ttl`. A confirmation counts for `window`.
    #[must_use]
    pub fn new(max_ttl: Ttl, drift: Drift, window: Duration) -> Self {
        let settling = max_ttl.as_duration().saturating_add(window);
        // The allowance is for the whole time, and a ttl has a limit.
        let allowance = Ttl::new(settling).map_or(settling, |all| drift.allowance(all));
        Self {
            window,
            settling: settling.saturating_add(allowance),
        }
    }

    /// Returns how long a confirmation counts.
    #[must_use]
    pub const fn window(self) -> Duration {
        self.window
    }

    /// Returns for how long an owner must have been confirmed before its votes count.
    #[must_use]
    pub const fn settling(self) -> Duration {
        self.settling
    }
}

impl Owner {
    /// Creates the name from the authority's text.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the authority's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests;
