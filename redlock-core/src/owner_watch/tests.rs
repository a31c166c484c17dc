use super::*;
use alloc::vec;

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
