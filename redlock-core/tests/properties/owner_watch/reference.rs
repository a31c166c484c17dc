//! What a watch must say, counted again from the whole log of what it has heard.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::{Eligibility, MemberId, MemberReport, OwnerWatch, Tenure, Timestamp};

use super::reports::{Input, WINDOW, millis, rule, tenures};

type Log = [(Timestamp, Input)];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) tenure: Option<Tenure>,
    /// From when on votes count, and until when.
    pub(super) eligibility: Option<(Timestamp, Timestamp)>,
}

impl Verdict {
    /// Returns what the watch says of each tenure.
    pub(super) fn of(watch: &OwnerWatch) -> Self {
        let tenure = watch.tenure().cloned();
        let others = tenures().into_iter();
        for other in others.filter(|it| Some(it) != tenure.as_ref()) {
            assert_eq!(watch.eligibility(&other), Eligibility::NEVER, "{other:?}");
        }
        let eligibility = tenure.as_ref().map(|it| watch.eligibility(it));
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
    /// A confirmation has the date of the newest report.
    DateOfTheNewest,
    DateOfTheAnswer,
    /// The largest age counts, also if no majority says it.
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
    tenure: &'a Tenure,
    since: Timestamp,
    at: Timestamp,
}

/// Returns what a watch must say after this log.
pub(super) fn verdict(log: &Log, fewest: usize, mistake: Option<Mistake>) -> Verdict {
    let is = |it| mistake == Some(it);
    let heard = (0..log.len()).filter_map(|index| confirmation(log, index, fewest, mistake));
    let heard: Vec<_> = heard.collect();
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
    let is_epoch_back = before.is_some_and(|it| heard[it].tenure.epoch > last.tenure.epoch);
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

/// Returns what a majority says when the report at this position has come.
fn confirmation(
    log: &Log,
    index: usize,
    fewest: usize,
    mistake: Option<Mistake>,
) -> Option<Confirmation<'_>> {
    let is = |it| mistake == Some(it);
    let log = &log[..=index];
    let (_, Input::Report(_)) = log.last()? else {
        return None;
    };
    let reports = log.iter().filter_map(|(now, input)| match input {
        Input::Report(report) => Some((*now, report)),
        Input::Marker(..) => None,
    });
    let now = reports.clone().map(|(now, _)| now).max()?;
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
    let mut all: BTreeSet<_> = newest.keys().collect();
    if !is(Mistake::AnsweringMembersOnly) {
        all.extend(newest.values().flat_map(|it| &it.members));
    }
    let fewest = if is(Mistake::FewestMembersIgnored) {
        1
    } else {
        fewest
    };
    let majority = all.len().max(fewest) / 2 + 1;
    let mut named = newest.values().filter_map(|it| it.tenure.as_ref());
    let named_by = |tenure: &Tenure| -> Vec<&MemberReport> {
        let reports = newest.values().copied();
        let names = |it: &&MemberReport| it.tenure.as_ref() == Some(tenure);
        reports.filter(names).collect()
    };
    let tenure = named.find(|it| named_by(it).len() >= majority)?;
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
    Some(Confirmation {
        index,
        tenure,
        since: told_at.saturating_sub(age),
        at: if is(Mistake::DateOfTheAnswer) {
            now
        } else {
            asked
        },
    })
}

impl Mistake {
    pub(super) const ALL: [Self; 13] = [
        Self::LastToComeCounts,
        Self::NothingIsForgotten,
        Self::AnsweringMembersOnly,
        Self::FewestMembersIgnored,
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
