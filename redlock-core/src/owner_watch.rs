use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use crate::{
    Eligibility, MemberId, MemberList, MemberReport, OwnerRule, Tenure, Timestamp,
    circle::{Agreement, Circle},
};

/// Decides which server is the owner of a node, and when its votes count: as [`OwnerRule`] says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerWatch {
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
    pub(crate) const fn new(rule: OwnerRule) -> Self {
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
    pub(crate) fn with_epochs_that_begin_anew(self) -> Self {
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
    pub(crate) fn handle_report(&mut self, now: Timestamp, mut report: MemberReport) -> bool {
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
    pub(crate) fn handle_roll_call(&mut self, now: Timestamp, asked_at: Timestamp) -> bool {
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
    pub(crate) fn handle_marker(&mut self, now: Timestamp, tenure: &Tenure, age: Duration) {
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
    pub(crate) fn tenure(&self) -> Option<&Tenure> {
        self.current.as_ref().map(|current| &current.tenure)
    }

    /// Returns the rivals by the last report: members of two authorities, while nothing is confirmed because of them.
    pub(crate) const fn rivals(&self) -> Option<Rivals> {
        self.rivals
    }

    /// Returns what the votes of a server are worth that was connected to in this tenure.
    pub(crate) fn eligibility(&self, connected: &Tenure) -> Eligibility {
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
