//! What a watch must say, counted again from the whole log of what it has heard.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::{Electorate, Eligibility, Identity, MemberId, MemberReport, Tenure, Timestamp};

use super::reports::{Input, NODE, WINDOW, millis, rule, tenures};

type Log = [(Timestamp, Input)];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) tenure: Option<Tenure>,
    /// From when on votes count, and until when.
    pub(super) eligibility: Option<(Timestamp, Timestamp)>,
}

impl Verdict {
    /// Returns what the watch says of each tenure.
    pub(super) fn of(watch: &Electorate) -> Self {
        let tenure = watch.tenure(NODE).cloned();
        let worth = |connected: &Tenure| {
            let (mut watch, now) = (watch.clone(), Timestamp::ZERO);
            let admission =
                watch.handle_owner_connection(now, NODE, connected, &Identity::InProcess);
            admission.outcome.expect("it is not excluded")
        };
        let others = tenures().into_iter();
        for other in others.filter(|it| Some(it) != tenure.as_ref()) {
            assert_eq!(worth(&other), Eligibility::NEVER, "{other:?}");
        }
        let eligibility = tenure.as_ref().map(worth);
        Self {
            eligibility: eligibility.map(|it| (it.starts_at(), it.ends_at())),
            tenure,
        }
    }
}

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The report that came last counts, and not the one that was asked for last.
    LastToComeCounts,
    NothingIsForgotten,
    /// The members that answer are all.
    AnsweringMembersOnly,
    FewestMembersIgnored,
    /// Members count together that do not know each other.
    StrangersCounted,
    /// What another authority says changes nothing.
    RivalsIgnored,
    /// Any authority is followed, whichever was confirmed before.
    AnyAuthorityFollowed,
    /// A first owner is confirmed between two roll calls.
    NoRollCall,
    /// A roll call counts, however old it is.
    OldRollCall,
    /// A rival does not take away an owner that is new.
    NewOwnerKept,
    /// A rival takes away any owner.
    EveryOwnerTaken,
    /// A confirmation has the date of the newest report.
    DateOfTheNewest,
    DateOfTheAnswer,
    /// The largest age counts, even if no majority says it.
    LargestAge,
    AgeFromTheQuestion,
    /// The watch goes on in another tenure.
    WatchGoesOn,
    /// The watch begins anew after an interruption.
    InterruptionsCount,
    MarkersAfterAnEpochWentBack,
    MarkersOfOtherEpochs,
    MarkersIgnored,
}

/// What a majority says, and when that was heard.
struct Confirmation<'a> {
    index: usize,
    heard_at: Timestamp,
    tenure: &'a Tenure,
    members: BTreeSet<MemberId>,
    since: Timestamp,
    at: Timestamp,
}

/// What the reports come to.
enum Judgement<'a> {
    Confirmed(Confirmation<'a>),
    Rivals { now: Timestamp },
}

/// Reports of members that know each other, and all members that they know.
struct Circle<'a> {
    reports: Vec<&'a MemberReport>,
    members: BTreeSet<MemberId>,
}

/// Returns what a watch must say after this log.
pub(super) fn verdict(log: &Log, fewest: usize, mistake: Option<Mistake>) -> Verdict {
    let is = |it| mistake == Some(it);
    let mut heard = Vec::new();
    for index in 0..log.len() {
        match judgement(log, index, fewest, heard.last(), mistake) {
            Some(Judgement::Confirmed(next)) => heard.push(next),
            Some(Judgement::Rivals { now }) => {
                let first: Option<&Confirmation<'_>> = heard.first();
                let is_new =
                    |it: &Confirmation<'_>| it.heard_at.saturating_add(millis(WINDOW)) >= now;
                let is_taken = is(Mistake::EveryOwnerTaken) || first.is_some_and(is_new);
                if is_taken && !is(Mistake::NewOwnerKept) {
                    heard.clear();
                }
            }
            None => {}
        }
    }
    let Some(last) = heard.last() else {
        return Verdict {
            tenure: None,
            eligibility: None,
        };
    };
    let (before, run) = match heard.iter().rposition(|it| it.tenure != last.tenure) {
        Some(before) => (Some(before), &heard[before + 1..]),
        None => (None, &heard[..]),
    };
    let until = run.iter().map(|it| it.at).max().expect("the last one");
    let counted = if is(Mistake::WatchGoesOn) {
        &heard[..]
    } else if is(Mistake::InterruptionsCount) {
        let is_gap =
            |pair: &[Confirmation<'_>]| pair[0].at.saturating_add(millis(WINDOW)) < pair[1].at;
        let resumed = run.windows(2).rposition(is_gap).map_or(0, |it| it + 1);
        &run[resumed..]
    } else {
        run
    };
    let watched = counted.iter().map(|it| it.since);
    let is_epoch_back = before.is_some_and(|it| heard[it].tenure.epoch >= last.tenure.epoch);
    let believes_markers = !is_epoch_back || is(Mistake::MarkersAfterAnEpochWentBack);
    let markers = log[run[0].index..]
        .iter()
        .filter_map(|(now, input)| match input {
            Input::Marker(tenure, age) if believes_markers && !is(Mistake::MarkersIgnored) => {
                let is_same_owner = tenure.owner == last.tenure.owner;
                let is_meant =
                    tenure == last.tenure || is_same_owner && is(Mistake::MarkersOfOtherEpochs);
                is_meant.then(|| now.saturating_sub(*age))
            }
            _ => None,
        });
    let since = watched.chain(markers).min().expect("the last one");
    Verdict {
        tenure: Some(last.tenure.clone()),
        eligibility: Some((
            since.saturating_add(rule().settling()),
            until.saturating_add(millis(WINDOW)),
        )),
    }
}

/// Returns what the reports come to when the input at this position has come.
fn judgement<'a>(
    log: &'a Log,
    index: usize,
    fewest: usize,
    last: Option<&Confirmation<'_>>,
    mistake: Option<Mistake>,
) -> Option<Judgement<'a>> {
    let is = |it| mistake == Some(it);
    let log = &log[..=index];
    let dated = log
        .iter()
        .filter(|(_, it)| !matches!(it, Input::Marker(..)));
    let now = dated.map(|(now, _)| *now).max()?;
    let may_confirm = match log.last()?.1 {
        Input::Report(_) => last.is_some() || is(Mistake::NoRollCall),
        Input::RollCall(_) if last.is_some() => return None,
        Input::RollCall(at) => at.saturating_add(millis(WINDOW)) >= now || is(Mistake::OldRollCall),
        Input::Marker(..) => return None,
    };
    let reports = log.iter().filter_map(|(now, input)| match input {
        Input::Report(report) => Some((*now, report)),
        Input::RollCall(_) | Input::Marker(..) => None,
    });
    let mut newest = BTreeMap::<MemberId, &MemberReport>::new();
    for (_, report) in reports {
        let last = newest.entry(report.member).or_insert(report);
        if last.asked_at <= report.asked_at || is(Mistake::LastToComeCounts) {
            *last = report;
        }
    }
    if !is(Mistake::NothingIsForgotten) {
        newest.retain(|_, it| it.asked_at.saturating_add(millis(WINDOW)) >= now);
    }
    let fewest = if is(Mistake::FewestMembersIgnored) {
        1
    } else {
        fewest
    };
    let majority = |members: usize| members.max(fewest) / 2 + 1;
    let circles = circles(newest.values().copied(), mistake);
    let agreed = |circle: &Circle<'a>| {
        let votes = |tenure: &Tenure| circle.named_by(tenure).len();
        let mut named = circle.tenures();
        named.find(|it| votes(it) >= majority(circle.members.len()))
    };
    let is_own = |circle: &Circle<'_>, tenure: &Tenure| {
        is(Mistake::AnyAuthorityFollowed)
            || last.is_none_or(|last| {
                let shared = last.members.intersection(&circle.members).count();
                2 * shared > last.members.len() || last.tenure.owner == tenure.owner
            })
    };
    let own = circles
        .iter()
        .position(|it| agreed(it).is_some_and(|tenure| is_own(it, tenure)));
    let agreeing = own.and_then(|own| Some((&circles[own], agreed(&circles[own])?)));
    let (members, owner) = match (agreeing, last) {
        (Some((circle, tenure)), _) => (&circle.members, &tenure.owner),
        (None, Some(last)) => (&last.members, &last.tenure.owner),
        (None, None) => return None,
    };
    let is_rival = |other: &Circle<'a>| {
        let is_apart = other.members.is_disjoint(members);
        let could_agree = agreed(other).is_some() || is_apart && other.members.len() >= majority(0);
        could_agree && other.tenures().any(|it| it.owner != *owner)
    };
    let mut others = circles
        .iter()
        .enumerate()
        .filter(|(it, _)| Some(*it) != own);
    if !is(Mistake::RivalsIgnored) && others.any(|(_, it)| is_rival(it)) {
        return Some(Judgement::Rivals { now });
    }
    let (circle, tenure) = agreeing.filter(|_| may_confirm)?;
    let majority = majority(circle.members.len());
    let named_by = |tenure: &Tenure| circle.named_by(tenure);
    let least_of_majority = |of: fn(&MemberReport) -> Duration, is_largest: bool| {
        let mut values: Vec<_> = named_by(tenure).into_iter().map(of).collect();
        values.sort();
        let position = if is_largest { 1 } else { majority };
        values[values.len() - position]
    };
    let asked = |it: &MemberReport| it.asked_at.saturating_duration_since(Timestamp::ZERO);
    let asked = least_of_majority(asked, is(Mistake::DateOfTheNewest));
    let asked = Timestamp::ZERO.saturating_add(asked);
    let age = least_of_majority(|it| it.age, is(Mistake::LargestAge));
    let told_at = if is(Mistake::AgeFromTheQuestion) {
        asked
    } else {
        now
    };
    Some(Judgement::Confirmed(Confirmation {
        index,
        heard_at: now,
        tenure,
        members: circle.members.clone(),
        since: told_at.saturating_sub(age),
        at: if is(Mistake::DateOfTheAnswer) {
            now
        } else {
            asked
        },
    }))
}

/// Sorts the reports by which members know each other.
fn circles<'a>(
    reports: impl Iterator<Item = &'a MemberReport>,
    mistake: Option<Mistake>,
) -> Vec<Circle<'a>> {
    let mut circles: Vec<Circle<'a>> = Vec::new();
    for report in reports {
        let mut members = BTreeSet::from([report.member]);
        if mistake != Some(Mistake::AnsweringMembersOnly) {
            members.extend(report.members.iter());
        }
        let knows = |one: &MemberReport, other: &MemberReport| {
            one.members.iter().any(|it| it == other.member)
        };
        let is_known = |other: &MemberReport| {
            let strangers_count = matches!(
                mistake,
                Some(Mistake::StrangersCounted | Mistake::AnsweringMembersOnly)
            );
            strangers_count || knows(report, other) && knows(other, report)
        };
        let mut reports = vec![report];
        let (known, others) = circles
            .into_iter()
            .partition(|it| it.reports.iter().any(|it| is_known(it)));
        circles = others;
        for circle in Vec::into_iter(known) {
            reports.extend(circle.reports);
            members.extend(circle.members);
        }
        reports.sort_by_key(|it| it.member);
        circles.push(Circle { reports, members });
    }
    circles.sort_by_key(|it| it.reports[0].member);
    circles
}

impl<'a> Circle<'a> {
    fn tenures(&self) -> impl Iterator<Item = &'a Tenure> {
        self.reports.iter().filter_map(|it| it.tenure.as_ref())
    }

    fn named_by(&self, tenure: &Tenure) -> Vec<&'a MemberReport> {
        let names = |it: &&&MemberReport| it.tenure.as_ref() == Some(tenure);
        self.reports.iter().filter(names).copied().collect()
    }
}

impl Mistake {
    pub(super) const ALL: [Self; 20] = [
        Self::LastToComeCounts,
        Self::NothingIsForgotten,
        Self::AnsweringMembersOnly,
        Self::FewestMembersIgnored,
        Self::StrangersCounted,
        Self::RivalsIgnored,
        Self::AnyAuthorityFollowed,
        Self::NoRollCall,
        Self::OldRollCall,
        Self::NewOwnerKept,
        Self::EveryOwnerTaken,
        Self::DateOfTheNewest,
        Self::DateOfTheAnswer,
        Self::LargestAge,
        Self::AgeFromTheQuestion,
        Self::WatchGoesOn,
        Self::InterruptionsCount,
        Self::MarkersAfterAnEpochWentBack,
        Self::MarkersOfOtherEpochs,
        Self::MarkersIgnored,
    ];
}
