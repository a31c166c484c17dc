//! When the votes of an owner count, whatever the members of its authority report, in whatever order.

mod council;
mod disturbed;
mod reference;
mod reports;

use std::cell::Cell;

use proptest::prelude::*;
use redlock_core::{OwnerRule, OwnerWatch};

use self::{
    council::{Client, councils},
    disturbed::disturbed,
    reference::{Mistake, Verdict},
    reports::{Input, WINDOW, rule, stories},
};
use crate::{check, finds};

#[test]
fn a_watch_says_what_the_reports_come_to() {
    check(400, &stories(), |story| {
        let mut watch = OwnerWatch::new(rule().with_fewest_members(story.fewest));
        for (index, (now, input)) in story.log.iter().enumerate() {
            let before = watch.tenure().cloned();
            match input {
                Input::Report(report) => {
                    let is_other = watch.handle_report(*now, report.clone());
                    prop_assert_eq!(is_other, watch.tenure() != before.as_ref());
                }
                Input::RollCall(asked_at) => {
                    let is_first = watch.handle_roll_call(*now, *asked_at);
                    prop_assert_eq!(is_first, watch.tenure() != before.as_ref());
                }
                Input::Marker(tenure, age) => watch.handle_marker(*now, tenure, *age),
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

/// Every vote that counts for a tenure is over before one counts for a later tenure, by any two clients.
#[test]
fn two_owners_never_vote_for_two_locks() {
    let both_voted = Cell::new(0);
    check(600, &councils(), |council| {
        let clients = council.clients(|_| rule());
        let overlap = council::overlap(&clients);
        prop_assert!(overlap.is_none(), "{overlap:?}");
        let has_voted = |tenure| {
            let votes = clients.iter().flat_map(Client::votes);
            votes.into_iter().any(|it| it.tenure == tenure)
        };
        let voted = (0..council::TENURES).filter(|it| has_voted(*it)).count();
        both_voted.set(both_voted.get() + u32::from(voted > 1));
        Ok(())
    });
    assert!(both_voted.get() > 0, "no second owner has ever voted");
}

/// The control: clients that break a rule let two owners vote.
#[test]
fn clients_with_another_rule_let_two_owners_vote() {
    // Far from the truth, so that a few random councils are enough.
    let shorter = reports::rule_of(1, WINDOW);
    let longer = reports::rule_of(reports::TTL, 4 * WINDOW);
    for (name, rules) in [
        ("nobody settles", [rule().without_settling(); 2]),
        ("settled too soon", [shorter; 2]),
        ("a longer window than others", [longer, rule()]),
    ] {
        let found = finds(1000, &councils(), |council| {
            council::overlap(&council.clients(|client| rules[client])).is_some()
        });
        assert!(found, "the property does not notice: {name}");
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
