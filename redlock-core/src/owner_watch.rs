use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use crate::{
    Eligibility, MemberId, MemberList, MemberReport, OwnerRule, Tenure, Timestamp,
    circle::{Agreement, Circle},
};

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
/// - The members know each other, and change one at a time. [`OwnerRule::with_fewest_members`] helps where
///   one of them has forgotten the others.
/// - An [age](MemberReport::age) is the age of the tenure. How long a server has been a master is no such
///   age: it may have been a replica for a moment.
///
/// # Two authorities
///
/// An address can lead to a member of another authority. If members of both were counted together, clients would
/// follow the larger authority, and clients with other addresses would stay in the smaller one. So only members
/// count together that know each other: each lists the other, or both know the same one in this way. If two such
/// circles name different servers, nothing is confirmed, and the watch reports the [`Rivals`].
///
/// A watch that has confirmed an owner stays with that authority. It recognises the authority if more than half of the
/// members are the same as at the last confirmation, or if the owner is the same. Without one of these, another
/// authority is not followed, even if nobody else answers.
///
/// A watch without an owner follows whichever authority agrees. So the order of the reports must not decide:
///
/// - It confirms an owner only at the end of a [roll call](Self::handle_roll_call), which comes after one report from
///   each configured address that answers. If the addresses lead to two authorities, both are known by then, however
///   the reports were ordered. After an interruption the old reports are forgotten, and the next roll call decides
///   again.
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
/// tenures of the first server look the same. So a watch [with such epochs](Self::with_epochs_that_begin_anew) begins
/// anew if a tenure was not confirmed for the longest ttl and the drift allowance: in a shorter time, no other server
/// can have settled and voted. It believes no markers, only the ages that members report.
///
/// The nodes of a cluster have epochs that last: a node whose epoch begins anew has another id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerWatch {
    rule: OwnerRule,
    /// The last report of each member that answers.
    reports: BTreeMap<MemberId, MemberReport>,
    current: Option<Confirmed>,
    rivals: Option<Rivals>,
    do_epochs_last: bool,
    /// The latest time that came with a report. Times may come out of order, since a driver may read the
    /// clock before it waits for access to the watch.
    latest: Timestamp,
}

/// Members of two authorities, of which only one can be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Rivals {
    /// A member of the authority that named the owner so far, or of either one if none was confirmed.
    pub member: MemberId,
    /// A member of the other authority.
    pub other: MemberId,
}

/// The tenure that was confirmed last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Confirmed {
    tenure: Tenure,
    /// The members of the authority at the last confirmation.
    members: MemberList,
    /// A time by which a majority had reported the tenure.
    since: Timestamp,
    /// When the watch confirmed its first tenure, of which this one is a successor.
    first_at: Timestamp,
    /// The date of the last confirmation.
    at: Timestamp,
    /// Whether the tenure before had the same epoch or a later one.
    is_epoch_back: bool,
}

/// One of two authorities.
struct Side<'a> {
    member: MemberId,
    members: &'a MemberList,
    tenure: &'a Tenure,
}

impl Side<'_> {
    /// Returns whether the circle is of another authority, and could name an owner.
    fn is_rival(&self, circle: &Circle<'_>, agrees: bool, rule: OwnerRule) -> bool {
        let members = circle.members();
        // A member that has lost its state knows no other, and is soon known again.
        let is_apart =
            || members.len() >= rule.majority(0) && members.shared_with(self.members) == 0;
        circle.names_another_than(self.tenure) && (agrees || is_apart())
    }
}

impl OwnerWatch {
    /// Creates a watch that has heard of no server.
    #[must_use]
    pub const fn new(rule: OwnerRule) -> Self {
        Self {
            rule,
            reports: BTreeMap::new(),
            current: None,
            rivals: None,
            do_epochs_last: true,
            latest: Timestamp::ZERO,
        }
    }

    /// Allows for an authority that may give the epoch of one tenure to a later tenure of the same server.
    #[must_use]
    pub fn with_epochs_that_begin_anew(self) -> Self {
        Self {
            do_epochs_last: false,
            ..self
        }
    }

    /// Takes the report of a member. `now` must be read *after* the report came. Returns whether the
    /// [tenure](Self::tenure) has changed: connections to the earlier owner are of no use any more.
    ///
    /// Reports may come late and in any order. A report that is older than one window changes nothing. A watch without
    /// an owner only keeps the report, until a [roll call](Self::handle_roll_call) is over.
    pub fn handle_report(&mut self, now: Timestamp, mut report: MemberReport) -> bool {
        self.latest = self.latest.max(now);
        // So that most members report equal lists.
        report.members.insert(report.member);
        self.note(report);
        let agreement = self.judge();
        let is_new = |current: &mut Confirmed| {
            self.latest <= current.first_at.saturating_add(self.rule.window())
        };
        if self.rivals.is_some() && self.current.take_if(is_new).is_some() {
            return true;
        }
        let agreement = agreement.filter(|_| self.current.is_some());
        agreement.is_some_and(|agreement| self.confirm(agreement))
    }

    /// Notes that a roll call is over: each configured address was asked at `asked_at` or later, and what it answered
    /// was [reported](Self::handle_report), or it was found silent then or later. Returns whether an owner was
    /// confirmed. A watch that has an owner needs no roll call, and one that is older than a window changes nothing.
    ///
    /// A driver calls this whenever it is true. Without it, a watch never confirms an owner.
    pub fn handle_roll_call(&mut self, now: Timestamp, asked_at: Timestamp) -> bool {
        self.latest = self.latest.max(now);
        let is_old = self.latest > asked_at.saturating_add(self.rule.window());
        if self.current.is_some() || is_old {
            return false;
        }
        let agreement = self.judge();
        agreement.is_some_and(|agreement| self.confirm(agreement))
    }

    /// Notes that some client had a confirmation of this tenure `age` ago, by a [marker](crate::AgeMarker)
    /// on its owner. `now` must be read *after* the answer came. Markers may be from an earlier life of the authority
    /// if an epoch was seen to go back, or if [epochs begin anew](Self::with_epochs_that_begin_anew). Then they change
    /// nothing.
    pub fn handle_marker(&mut self, now: Timestamp, tenure: &Tenure, age: Duration) {
        if let Some(current) = &mut self.current
            && current.tenure == *tenure
            && !current.is_epoch_back
            && self.do_epochs_last
        {
            current.since = current.since.min(now.saturating_sub(age));
        }
    }

    /// Returns the tenure that was confirmed last: the server to connect to. There is none before the first
    /// confirmation, nor after one that was given up because of [rivals](Self::rivals).
    #[must_use]
    pub fn tenure(&self) -> Option<&Tenure> {
        self.current.as_ref().map(|current| &current.tenure)
    }

    /// Returns the rivals by the last report: members of two authorities, while nothing is confirmed because of them.
    #[must_use]
    pub const fn rivals(&self) -> Option<Rivals> {
        self.rivals
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
    fn note(&mut self, mut report: MemberReport) {
        // Most members know the same list. One copy of it takes less memory, and clones are compared at once.
        let mut lists = self.reports.values().map(|report| &report.members);
        if let Some(known) = lists.find(|list| list.is_same_as(&report.members)) {
            report.members = known.clone();
        }
        let last = self.reports.get(&report.member);
        if last.is_none_or(|last| last.asked_at <= report.asked_at) {
            self.reports.insert(report.member, report);
        }
    }

    /// Returns what a majority of the authority reports, unless members of two authorities report. Notes these.
    fn judge(&mut self) -> Option<Agreement> {
        let (latest, window) = (self.latest, self.rule.window());
        self.reports
            .retain(|_, report| latest <= report.asked_at.saturating_add(window));
        let (agreement, rivals) = self.compare();
        self.rivals = rivals;
        agreement
    }

    /// Notes a confirmation. Returns whether it is the first one of its tenure.
    fn confirm(&mut self, agreement: Agreement) -> bool {
        let Agreement {
            tenure,
            members,
            at,
            age,
        } = agreement;
        let since = self.latest.saturating_sub(age);
        match &mut self.current {
            Some(current) if current.tenure == tenure => {
                let gap = self.latest.saturating_duration_since(current.at);
                let is_continued = self.do_epochs_last || gap < self.rule.longest_gap();
                current.since = if is_continued {
                    current.since.min(since)
                } else {
                    since
                };
                current.at = current.at.max(at);
                current.members = members;
                false
            }
            current => {
                let is_back = |before: &Confirmed| before.tenure.epoch >= tenure.epoch;
                let first_at = current.as_ref().map(|before| before.first_at);
                *current = Some(Confirmed {
                    is_epoch_back: current.as_ref().is_some_and(is_back),
                    first_at: first_at.unwrap_or(self.latest),
                    tenure,
                    members,
                    since,
                    at,
                });
                true
            }
        }
    }

    /// Returns what a majority of the authority reports. If members of two authorities report, returns them instead.
    fn compare(&self) -> (Option<Agreement>, Option<Rivals>) {
        let circles = Circle::all_of(self.reports.values());
        let agreement = |circle: &Circle<'_>| circle.agreement(self.rule);
        let mut agreements: Vec<_> = circles.iter().map(agreement).collect();
        let is_own =
            |it: &Option<Agreement>| it.as_ref().is_some_and(|agreement| self.is_own(agreement));
        let own = agreements.iter().position(is_own);
        let rivals = self.side(&circles, own, &agreements).and_then(|side| {
            let mut others = (0..circles.len()).filter(|place| Some(*place) != own);
            let is_rival =
                |it: &usize| side.is_rival(&circles[*it], agreements[*it].is_some(), self.rule);
            let other = others.find(is_rival)?;
            Some(Rivals {
                member: side.member,
                other: circles[other].first(),
            })
        });
        let agreement = own.and_then(|own| agreements.swap_remove(own));
        (agreement.filter(|_| rivals.is_none()), rivals)
    }

    /// Returns the authority whose rivals others may be: the one that agrees, or that was confirmed last, or any.
    fn side<'a>(
        &'a self,
        circles: &'a [Circle<'_>],
        own: Option<usize>,
        agreements: &'a [Option<Agreement>],
    ) -> Option<Side<'a>> {
        if let Some(own) = own {
            return Some(Side {
                member: circles[own].first(),
                members: circles[own].members(),
                tenure: &agreements[own].as_ref()?.tenure,
            });
        }
        if let Some(current) = &self.current {
            return Some(Side {
                member: current.members.iter().next()?,
                members: &current.members,
                tenure: &current.tenure,
            });
        }
        circles.iter().find_map(|circle| {
            Some(Side {
                member: circle.first(),
                members: circle.members(),
                tenure: circle.tenures().next()?,
            })
        })
    }

    /// Returns whether members that agree are those of the authority that was confirmed last, if any was.
    fn is_own(&self, agreement: &Agreement) -> bool {
        self.current.as_ref().is_none_or(|current| {
            let shared = current.members.shared_with(&agreement.members);
            2 * shared > current.members.len() || current.tenure.owner == agreement.tenure.owner
        })
    }
}

#[cfg(test)]
mod tests;
