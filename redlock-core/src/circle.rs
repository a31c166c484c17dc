use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::{fmt, time::Duration};

use crate::{MemberId, OwnerRule, Timestamp};

/// The name of a server in the reports of an authority, such as its address or its node id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

/// The time of one server as the owner of a node, from one failover to the next.
///
/// The same server with another epoch is another tenure: it was a replica meanwhile, and may have lost keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The server.
    pub owner: Owner,
    /// The authority's number of the failover that made the server the owner. It grows with each failover.
    pub epoch: u64,
}

/// The members of an authority, as one of them knows them. Clones share the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberList(Arc<[MemberId]>);

/// The report of one member of an authority on one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberReport {
    /// When the member was asked. Read *before* the question left.
    pub asked_at: Timestamp,
    /// The member.
    pub member: MemberId,
    /// The members of the authority that this member knows. It may list itself or not.
    pub members: MemberList,
    /// The server that is the owner by the member's word, or `None` if it names none.
    pub tenure: Option<Tenure>,
    /// For how long the member has known this tenure, at least. Zero if it does not say.
    pub age: Duration,
}

/// Members of an authority that know each other, by their last reports: of each two of them, either each lists the
/// other, or both know the same one in this way.
///
/// Two authorities whose addresses got mixed up are two circles. They stay two if one member has moved from the first
/// to the second: the others of the first still list it, but it does not list them.
pub(crate) struct Circle<'a> {
    reports: Vec<&'a MemberReport>,
    /// All members that any of them knows, whether they answer or not.
    members: MemberList,
}

/// The agreement of the reports.
pub(crate) struct Agreement {
    pub(crate) tenure: Tenure,
    /// All members that those who report know.
    pub(crate) members: MemberList,
    /// Each of a majority was asked then or later.
    pub(crate) at: Timestamp,
    /// Each member of a majority has known the tenure for this long.
    pub(crate) age: Duration,
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

impl MemberList {
    /// Returns whether the member is one of them.
    pub(crate) fn contains(&self, member: MemberId) -> bool {
        self.0.binary_search(&member).is_ok()
    }

    /// Returns the members, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = MemberId> {
        self.0.iter().copied()
    }

    /// Returns the number of members.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the lists are equal, and at once if one is a clone of the other.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.is_clone_of(other) || self == other
    }

    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns how many of these members are in the other list, too.
    pub(crate) fn shared_with(&self, other: &Self) -> usize {
        if self.is_same_as(other) {
            return self.len();
        }
        self.iter().filter(|member| other.contains(*member)).count()
    }

    /// Adds the member, if it is not listed.
    pub(crate) fn insert(&mut self, member: MemberId) {
        if !self.contains(member) {
            *self = self.iter().chain([member]).collect();
        }
    }
}

impl FromIterator<MemberId> for MemberList {
    fn from_iter<I: IntoIterator<Item = MemberId>>(members: I) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self(members.into())
    }
}

impl<'a> Circle<'a> {
    /// Sorts reports, at most one of each member, into circles. Each report lists its own member.
    pub(crate) fn all_of(reports: impl Iterator<Item = &'a MemberReport>) -> Vec<Self> {
        let mut rest: Vec<_> = reports.collect();
        let mut circles = Vec::new();
        while !rest.is_empty() {
            let mut reports: Vec<_> = rest.drain(..1).collect();
            let mut next = 0;
            while next < reports.len() && !rest.is_empty() {
                let one = reports[next];
                let (known, others): (Vec<_>, _) = rest
                    .into_iter()
                    .partition(|report| know_each_other(one, report));
                reports.extend(known);
                rest = others;
                next += 1;
            }
            circles.push(Self {
                members: union(&reports),
                reports,
            });
        }
        circles
    }

    pub(crate) fn members(&self) -> &MemberList {
        &self.members
    }

    /// Returns a member that has reported.
    pub(crate) fn first(&self) -> MemberId {
        self.reports[0].member
    }

    /// Returns a tenure that any member reports, if it is one of another owner than this one.
    pub(crate) fn names_another_than(&self, tenure: &Tenure) -> bool {
        let mut tenures = self.tenures();
        tenures.any(|other| other.owner != tenure.owner)
    }

    /// Returns the tenures that the members report.
    pub(crate) fn tenures(&self) -> impl Iterator<Item = &'a Tenure> {
        self.reports
            .iter()
            .filter_map(|report| report.tenure.as_ref())
    }

    /// Returns what a majority of all members reports.
    pub(crate) fn agreement(&self, rule: OwnerRule) -> Option<Agreement> {
        let majority = rule.majority(self.members.len());
        let mut votes = BTreeMap::<_, usize>::new();
        for tenure in self.tenures() {
            *votes.entry(tenure).or_default() += 1;
        }
        let (tenure, _) = votes.into_iter().find(|(_, votes)| *votes >= majority)?;
        let agreeing = self.reports.iter();
        let agreeing = agreeing.filter(|report| report.tenure.as_ref() == Some(tenure));
        let mut asked: Vec<Timestamp> = agreeing.clone().map(|report| report.asked_at).collect();
        let mut ages: Vec<_> = agreeing.map(|report| report.age).collect();
        // The latest, and the oldest, that a majority has in common.
        let (_, at, _) = asked.select_nth_unstable_by(majority - 1, |a, b| b.cmp(a));
        let (_, age, _) = ages.select_nth_unstable_by(majority - 1, |a, b| b.cmp(a));
        Some(Agreement {
            tenure: tenure.clone(),
            members: self.members.clone(),
            at: *at,
            age: *age,
        })
    }
}

fn know_each_other(one: &MemberReport, other: &MemberReport) -> bool {
    // The same list, as of most members.
    one.members.is_same_as(&other.members)
        || one.members.contains(other.member) && other.members.contains(one.member)
}

fn union(reports: &[&MemberReport]) -> MemberList {
    let first = &reports[0].members;
    let mut others: Vec<_> = reports.iter().map(|report| &report.members).collect();
    others.retain(|list| !list.is_same_as(first));
    if others.is_empty() {
        return first.clone();
    }
    others.dedup();
    let lists = others.into_iter().chain([first]);
    lists.flat_map(MemberList::iter).collect()
}
