use super::*;
use crate::{Drift, Owner, Ttl};
use alloc::{collections::BTreeSet, vec};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_secs(1000 + seconds))
}

fn member(letter: u8) -> MemberId {
    MemberId::new([letter; MemberId::LEN])
}

fn tenure(owner: &str, epoch: u64) -> Tenure {
    let owner = Owner::new(owner);
    Tenure { owner, epoch }
}

/// A ttl of 10 s and a window of 3 s.
fn watch() -> OwnerWatch {
    let max_ttl = Ttl::new(10 * SECOND).unwrap();
    let drift = Drift::new(0, Duration::ZERO);
    OwnerWatch::new(OwnerRule::new(max_ttl, drift, 3 * SECOND))
}

/// A report of one of three members.
fn report(letter: u8, asked_at: Timestamp, tenure: &Tenure) -> MemberReport {
    MemberReport {
        asked_at,
        member: member(letter),
        members: vec![member(b'a'), member(b'b'), member(b'c')],
        tenure: Some(tenure.clone()),
        age: Duration::ZERO,
    }
}

#[test]
fn an_owner_votes_when_a_majority_has_named_it_for_long_enough() {
    let mut watch = watch();
    let first = tenure("m", 1);
    assert!(!watch.handle_report(at(0), report(b'a', at(0), &first)));
    assert_eq!(watch.tenure(), None, "one of three");
    assert!(watch.handle_report(at(1), report(b'b', at(1), &first)));
    let eligibility = watch.eligibility(&first);
    assert_eq!(eligibility.starts_at(), at(1 + 13));
    assert_eq!(eligibility.ends_at(), at(3), "the older report counts");
    assert!(!watch.handle_report(at(2), report(b'c', at(2), &first)));
    assert_eq!(watch.eligibility(&first).starts_at(), at(14));
    assert_eq!(watch.eligibility(&first).ends_at(), at(1 + 3));
}

#[test]
fn an_interruption_does_not_restart_the_watch_and_another_tenure_does() {
    let mut watch = watch();
    let first = tenure("m", 1);
    for letter in [b'a', b'b'] {
        watch.handle_report(at(0), report(letter, at(0), &first));
    }
    watch.handle_report(at(60), report(b'a', at(60), &first));
    assert!(!watch.eligibility(&first).covers(at(60)));
    watch.handle_report(at(61), report(b'b', at(61), &first));
    assert!(watch.eligibility(&first).covers(at(61)));
    let second = tenure("r", 2);
    watch.handle_report(at(62), report(b'a', at(62), &second));
    assert!(watch.eligibility(&first).covers(at(62)));
    assert!(watch.handle_report(at(62), report(b'b', at(62), &second)));
    assert_eq!(watch.eligibility(&first), Eligibility::NEVER);
    assert_eq!(watch.eligibility(&second).starts_at(), at(62 + 13));
}

#[test]
fn a_majority_is_one_of_all_members_that_are_known() {
    let mut watch = watch();
    let first = tenure("m", 1);
    let five = [b'a', b'b', b'c', b'd', b'e'].map(member);
    for letter in [b'a', b'b'] {
        let mut report = report(letter, at(0), &first);
        report.members = five.to_vec();
        watch.handle_report(at(0), report);
    }
    assert_eq!(
        watch.tenure(),
        None,
        "two of five, although both are listed"
    );
    watch.handle_report(at(0), report(b'c', at(0), &first));
    assert_eq!(watch.tenure(), Some(&first));
}

#[test]
fn the_age_is_what_each_of_a_majority_says_at_least_or_a_marker() {
    let mut watch = watch();
    let first = tenure("m", 1);
    for (letter, age) in [(b'a', 100), (b'b', 5)] {
        let age = Duration::from_secs(age);
        let report = report(letter, at(0), &first);
        watch.handle_report(at(0), MemberReport { age, ..report });
    }
    assert_eq!(watch.eligibility(&first).starts_at(), at(13 - 5));
    watch.handle_marker(at(1), &tenure("m", 2), 50 * SECOND);
    assert_eq!(watch.eligibility(&first).starts_at(), at(8), "of another");
    watch.handle_marker(at(1), &first, 9 * SECOND);
    assert_eq!(watch.eligibility(&first).starts_at(), at(13 + 1 - 9));
}

/// Members a, b and c name it at this second.
fn all_report(watch: &mut OwnerWatch, second: u64, tenure: &Tenure) {
    for letter in [b'a', b'b', b'c'] {
        watch.handle_report(at(second), report(letter, at(second), tenure));
    }
}

#[test]
fn a_confirmation_counts_for_one_window_and_no_longer() {
    let mut watch = watch();
    let first = tenure("m", 1);
    all_report(&mut watch, 0, &first);
    all_report(&mut watch, 20, &first);
    let nano = Duration::from_nanos(1);
    let eligibility = watch.eligibility(&first);
    assert!(eligibility.covers(at(23)));
    assert!(!eligibility.covers(at(23).saturating_add(nano)));
    assert!(!eligibility.covers(at(13).saturating_sub(nano)));
}

#[test]
fn a_confirmation_is_dated_by_the_question_however_late_the_answer_is() {
    let mut watch = watch();
    let first = tenure("m", 1);
    watch.handle_report(at(2), report(b'a', at(0), &first));
    watch.handle_report(at(3), report(b'b', at(3), &first));
    let eligibility = watch.eligibility(&first);
    assert_eq!(eligibility.starts_at(), at(3 + 13));
    assert_eq!(eligibility.ends_at(), at(3));
}

#[test]
fn a_report_that_is_older_than_the_window_changes_nothing() {
    let mut watch = watch();
    let first = tenure("m", 1);
    watch.handle_report(at(4), report(b'a', at(0), &first));
    watch.handle_report(at(4), report(b'b', at(4), &first));
    assert_eq!(watch.tenure(), None);
    assert!(
        !watch.handle_report(at(8), report(b'a', at(8), &first)),
        "a report that was young then is too old now"
    );
    assert!(watch.handle_report(at(8), report(b'c', at(8), &first)));
}

#[test]
fn reports_of_one_member_may_come_out_of_order() {
    let mut watch = watch();
    let [first, second] = [tenure("m", 1), tenure("r", 2)];
    watch.handle_report(at(2), report(b'a', at(2), &second));
    watch.handle_report(at(2), report(b'a', at(1), &first));
    watch.handle_report(at(2), report(b'b', at(1), &first));
    assert_eq!(watch.tenure(), None, "a has turned");
    assert!(watch.handle_report(at(2), report(b'b', at(2), &second)));
    assert_eq!(watch.tenure(), Some(&second));
}

#[test]
fn a_time_that_is_earlier_than_the_last_one_makes_no_owner_older() {
    let mut watch = watch();
    let first = tenure("m", 1);
    watch.handle_report(at(9), report(b'a', at(8), &first));
    watch.handle_report(at(8), report(b'b', at(7), &first));
    assert_eq!(watch.eligibility(&first).starts_at(), at(9 + 13));
}

#[test]
fn members_that_name_nobody_or_another_server_count_as_members() {
    let mut watch = watch();
    let first = tenure("m", 1);
    let silent = MemberReport {
        members: vec![],
        tenure: None,
        ..report(b'd', at(0), &first)
    };
    watch.handle_report(at(0), silent);
    for letter in [b'a', b'b'] {
        watch.handle_report(at(0), report(letter, at(0), &first));
    }
    assert_eq!(watch.tenure(), None, "two of four");
    watch.handle_report(at(0), report(b'c', at(0), &first));
    assert_eq!(watch.tenure(), Some(&first));
}

#[test]
fn a_member_counts_until_its_last_report_is_older_than_the_window() {
    let mut watch = watch();
    let first = tenure("m", 1);
    let apart = MemberReport {
        members: vec![b'd', b'e', b'f', b'g']
            .into_iter()
            .map(member)
            .collect(),
        ..report(b'd', at(0), &first)
    };
    watch.handle_report(at(0), apart);
    all_report(&mut watch, 3, &first);
    assert_eq!(watch.tenure(), Some(&first), "four of seven");
    all_report(&mut watch, 4, &tenure("r", 2));
    assert_eq!(watch.tenure(), Some(&tenure("r", 2)), "three of three");
}

#[test]
fn a_member_that_has_forgotten_the_others_is_no_majority_of_itself() {
    let alone = |rule| {
        let mut watch = OwnerWatch::new(rule);
        let report = MemberReport {
            members: vec![],
            ..report(b'z', at(0), &tenure("m", 0))
        };
        watch.handle_report(at(0), report)
    };
    let rule = watch().rule;
    assert!(alone(rule));
    assert!(!alone(rule.with_fewest_members(3)));
}

#[test]
fn the_same_owner_with_another_epoch_is_another_tenure() {
    let mut watch = watch();
    let [first, third] = [tenure("m", 1), tenure("m", 3)];
    all_report(&mut watch, 0, &first);
    watch.handle_report(at(50), report(b'a', at(50), &third));
    assert!(watch.handle_report(at(50), report(b'b', at(50), &third)));
    assert_eq!(watch.tenure(), Some(&third));
    assert_eq!(watch.eligibility(&first), Eligibility::NEVER);
    assert_eq!(watch.eligibility(&third).starts_at(), at(50 + 13));
}

#[test]
fn a_marker_makes_no_owner_younger() {
    let mut watch = watch();
    let first = tenure("m", 1);
    watch.handle_marker(at(0), &first, 90 * SECOND);
    assert_eq!(watch.tenure(), None, "a marker confirms nothing");
    all_report(&mut watch, 10, &first);
    watch.handle_marker(at(11), &first, Duration::ZERO);
    assert_eq!(watch.eligibility(&first).starts_at(), at(10 + 13));
    watch.handle_marker(at(11), &first, Duration::MAX);
    assert_eq!(
        watch.eligibility(&first).starts_at(),
        Timestamp::ZERO.saturating_add(13 * SECOND)
    );
}

#[test]
fn markers_are_ignored_after_an_epoch_has_gone_back() {
    let mut watch = watch();
    let [second, anew] = [tenure("r", 2), tenure("m", 0)];
    all_report(&mut watch, 0, &second);
    all_report(&mut watch, 9, &anew);
    assert_eq!(watch.tenure(), Some(&anew), "it is followed all the same");
    watch.handle_marker(at(9), &anew, 90 * SECOND);
    assert_eq!(watch.eligibility(&anew).starts_at(), at(9 + 13));
    all_report(&mut watch, 20, &tenure("r", 1));
    watch.handle_marker(at(20), &tenure("r", 1), 5 * SECOND);
    assert_eq!(watch.eligibility(&tenure("r", 1)).starts_at(), at(15 + 13));
}

proptest! {
    /// However the reports come, the watch knows the members that the reports name which it has kept.
    #[test]
    fn the_members_are_those_that_an_answering_member_knows(
        reports in prop::collection::vec((b'a'..b'f', 0..20_u64, prop::collection::vec(b'a'..b'h', 0..6)), 0..40),
    ) {
        let mut watch = watch();
        let mut latest = 0;
        for (letter, asked, others) in reports {
            latest = latest.max(asked);
            let report = MemberReport {
                members: others.into_iter().map(member).collect(),
                ..report(letter, at(asked), &tenure("m", 1))
            };
            watch.handle_report(at(latest), report);
            let lists: Vec<_> = watch.reports.values().map(|it| &it.members).collect();
            let named: BTreeSet<_> = lists.iter().copied().flatten().collect();
            prop_assert_eq!(watch.known.keys().collect::<BTreeSet<_>>(), named);
            for (id, count) in &watch.known {
                prop_assert_eq!(*count, lists.iter().filter(|it| it.contains(id)).count());
            }
        }
    }
}
