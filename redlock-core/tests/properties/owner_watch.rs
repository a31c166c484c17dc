//! When the votes of an owner count, whatever the members of its authority report, in whatever order.

mod disturbed;
mod reference;
mod reports;

use std::cell::Cell;

use proptest::prelude::*;
use redlock_core::OwnerRule;

use self::{
    disturbed::disturbed,
    reference::{Mistake, Verdict},
    reports::{Input, NODE, electorate, rule, stories},
};
use crate::{check, finds};

#[test]
fn a_watch_says_what_the_reports_come_to() {
    check(400, &stories(), |story| {
        let mut watch = electorate(rule().with_fewest_members(story.fewest));
        for (index, (now, input)) in story.log.iter().enumerate() {
            let before = watch.tenure(NODE).cloned();
            match input {
                Input::Report(report) => {
                    let is_other = watch.handle_report(*now, NODE, report.clone());
                    prop_assert_eq!(is_other, watch.tenure(NODE) != before.as_ref());
                }
                Input::RollCall(asked_at) => {
                    let is_first = watch.handle_roll_call(*now, NODE, *asked_at);
                    prop_assert_eq!(is_first, watch.tenure(NODE) != before.as_ref());
                }
                Input::Marker(tenure, age) => watch.handle_marker(*now, NODE, tenure, *age),
            }
            let log = &story.log[..=index];
            let expected = reference::verdict(log, story.fewest, None);
            prop_assert_eq!(Verdict::of(&watch), expected, "after input {}", index + 1);
        }
        Ok(())
    });
}

/// The control: a reference with one rule broken differs from the true one.
#[test]
fn each_broken_rule_changes_a_verdict() {
    for mistake in Mistake::ALL {
        let found = finds(5000, &stories(), |story| {
            let of = |mistake| reference::verdict(&story.log, story.fewest, mistake);
            of(None) != of(Some(mistake))
        });
        assert!(found, "{mistake:?} is not noticed");
    }
}

/// What fewer than half of the members say, and when, takes no vote from an owner that the others name.
#[test]
fn no_member_delays_the_others() {
    let confirmed = Cell::new(0);
    check(400, &disturbed(), |council| {
        let calm = council.watch(group(), false, 0);
        let disturbed = council.watch(group(), true, 0);
        for (calm, disturbed) in calm.iter().zip(&disturbed) {
            confirmed.set(confirmed.get() + u32::from(calm.tenure.is_some()));
            prop_assert!(covers(disturbed, calm), "{disturbed:?} {calm:?}");
        }
        Ok(())
    });
    assert!(confirmed.get() > 0, "no owner was ever confirmed");
}

/// The control: members that know further members make a majority larger. Members that have forgotten the others are
/// a majority of themselves, if the rule does not say how many there are.
#[test]
fn members_that_know_more_or_fewer_members_delay_the_others() {
    for (rule, strangers) in [(group(), 2), (rule(), 0)] {
        let found = finds(400, &disturbed(), |council| {
            let calm = council.watch(rule, false, 0);
            let disturbed = council.watch(rule, true, strangers);
            let mut pairs = disturbed.iter().zip(&calm);
            pairs.any(|(disturbed, calm)| !covers(disturbed, calm))
        });
        assert!(found, "the property notices nothing: {strangers} strangers");
    }
}

/// The rule of clients that know how many members there are.
fn group() -> OwnerRule {
    rule().with_fewest_members(disturbed::MEMBERS)
}

/// Returns whether all votes that count by one verdict also count by the other.
fn covers(one: &Verdict, other: &Verdict) -> bool {
    match (one.eligibility, other.eligibility) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some((start, end)), Some((other_start, other_end))) => {
            one.tenure == other.tenure && start <= other_start && end >= other_end
        }
    }
}
