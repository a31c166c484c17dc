use super::*;
use crate::{Drift, Owner, Ttl};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_secs(1000 + seconds))
}

fn member(letter: u8) -> MemberId {
    MemberId::new([letter; MemberId::LEN])
}

fn list(letters: &[u8]) -> MemberList {
    letters.iter().map(|it| member(*it)).collect()
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
        members: list(b"abc"),
        tenure: Some(tenure.clone()),
        age: Duration::ZERO,
    }
}

/// Takes a report of an address that was the only one to be asked. Returns whether the owner has changed.
fn hear(watch: &mut OwnerWatch, now: Timestamp, report: MemberReport) -> bool {
    let asked_at = report.asked_at;
    let has_changed = watch.handle_report(now, report);
    watch.handle_roll_call(now, asked_at) || has_changed
}

/// A watch that has known this owner for long.
fn watch_of(owner: &Tenure) -> OwnerWatch {
    let mut watch = watch();
    let long_ago = Timestamp::ZERO;
    for letter in *b"abc" {
        hear(&mut watch, long_ago, report(letter, long_ago, owner));
    }
    watch
}

/// A report of a member of another authority, which knows these members.
fn foreign(letter: u8, known: &[u8], second: u64, tenure: &Tenure) -> MemberReport {
    MemberReport {
        members: list(known),
        ..report(letter, at(second), tenure)
    }
}

/// These members report at this second, one after the other. Returns whether any report changes the owner.
fn hear_all(
    watch: &mut OwnerWatch,
    letters: &[u8],
    known: &[u8],
    second: u64,
    tenure: &Tenure,
) -> bool {
    let mut has_changed = false;
    for letter in letters {
        has_changed |= hear(watch, at(second), foreign(*letter, known, second, tenure));
    }
    has_changed
}

/// Members a, b and c name it at this second.
fn all_report(watch: &mut OwnerWatch, second: u64, tenure: &Tenure) {
    hear_all(watch, b"abc", b"abc", second, tenure);
}

#[test]
fn an_owner_votes_when_a_majority_has_named_it_for_long_enough() {
    let mut watch = watch();
    let first = tenure("m", 1);
    assert!(!hear(&mut watch, at(0), report(b'a', at(0), &first)));
    assert_eq!(watch.tenure(), None, "one of three");
    let age = 100 * SECOND;
    let report_of_b = report(b'b', at(3), &first);
    let report_of_b = MemberReport { age, ..report_of_b };
    assert!(hear(&mut watch, at(3), report_of_b));
    let eligibility = watch.eligibility(&first);
    assert_eq!(eligibility.starts_at(), at(3 + 13), "the shorter age");
    assert_eq!(eligibility.ends_at(), at(3), "the older report counts");
    for letter in *b"ca" {
        assert!(!hear(&mut watch, at(4), report(letter, at(4), &first)));
    }
    // It knows one more, so that all three are needed, and takes nothing back.
    hear(&mut watch, at(4), foreign(b'c', b"abcd", 4, &first));
    assert_eq!(watch.eligibility(&first).starts_at(), at(3 + 13));
    assert_eq!(watch.eligibility(&first).ends_at(), at(4 + 3));
}

#[test]
fn reports_that_come_late_change_nothing() {
    let [first, second] = [tenure("m", 1), tenure("r", 2)];
    let mut watch = watch_of(&first);
    all_report(&mut watch, 2, &second);
    all_report(&mut watch, 1, &first);
    assert_eq!(watch.tenure(), Some(&second));
    assert_eq!(watch.eligibility(&second).starts_at(), at(2 + 13));
}

#[test]
fn a_roll_call_counts_for_one_window() {
    let mut watch = watch();
    let first = tenure("m", 1);
    for letter in *b"ab" {
        watch.handle_report(at(5), report(letter, at(5), &first));
    }
    assert!(!watch.handle_roll_call(at(5), at(1)), "too old");
    // The clock was read before the reports came.
    assert!(watch.handle_roll_call(at(4), at(2)));
    assert_eq!(watch.eligibility(&first).starts_at(), at(5 + 13));
}

#[test]
fn members_that_know_each_other_through_another_are_one_authority() {
    let mut watch = watch();
    let own = tenure("m", 1);
    for (letter, known) in [(b'a', &b"abde"[..]), (b'b', b"abc"), (b'c', b"bc")] {
        hear(&mut watch, at(0), foreign(letter, known, 0, &own));
    }
    assert_eq!(watch.tenure(), Some(&own), "three of five");
}

#[test]
fn an_address_that_leads_to_a_larger_authority_is_not_followed() {
    let [own, theirs] = [tenure("m", 1), tenure("n", 9)];
    let mut watch = watch_of(&own);
    all_report(&mut watch, 0, &own);
    // One that claims to name the owner later is enough.
    hear(&mut watch, at(1), foreign(b'v', b"vwxyz", 1, &theirs));
    let rivals = watch.rivals().expect("two authorities");
    assert_eq!((rivals.member, rivals.other), (member(b'a'), member(b'v')));
    all_report(&mut watch, 2, &own);
    let ends_at = watch.eligibility(&own).ends_at();
    assert_eq!(ends_at, at(3), "not confirmed again");
    assert!(!hear_all(&mut watch, b"wxyz", b"vwxyz", 2, &theirs));
    // Its own authority does not answer any more.
    assert!(!hear_all(&mut watch, b"vwxyz", b"vwxyz", 50, &theirs));
    assert_eq!(watch.tenure(), Some(&own));
    assert_eq!(watch.rivals().map(|it| it.other), Some(member(b'v')));
    all_report(&mut watch, 60, &own);
    assert_eq!(watch.rivals(), None, "the address leads elsewhere again");
    assert!(watch.eligibility(&own).covers(at(60)));
}

/// All orders of these.
fn orders(all: &[u8]) -> Vec<Vec<u8>> {
    let Some((first, rest)) = all.split_first() else {
        return alloc::vec![Vec::new()];
    };
    let with_first = |order: Vec<u8>| {
        (0..=order.len()).map(move |place| {
            let mut order = order.clone();
            order.insert(place, *first);
            order
        })
    };
    orders(rest).into_iter().flat_map(with_first).collect()
}

#[test]
fn a_client_that_starts_judges_the_reports_of_a_roll_call_together_in_whatever_order_they_come() {
    let [one, other] = [tenure("m", 1), tenure("n", 1)];
    for (list, agrees) in [
        (&b"ax"[..], false),
        (b"axy", false),
        (b"abx", false),
        (b"abxyz", false),
        (b"abcxy", false),
        (b"ab", true),
        (b"abc", true),
    ] {
        for order in orders(list) {
            let mut watch = OwnerWatch::new(watch().rule.with_fewest_members(list.len()));
            for letter in &order {
                let report = if *letter < b'x' {
                    foreign(*letter, b"abc", 0, &one)
                } else {
                    foreign(*letter, b"xyz", 0, &other)
                };
                assert!(!watch.handle_report(at(0), report));
                assert_eq!(watch.tenure(), None, "{order:?}");
            }
            assert_eq!(watch.handle_roll_call(at(0), at(0)), agrees, "{order:?}");
            assert_eq!(watch.rivals().is_some(), !agrees, "{order:?}");
        }
    }
}

#[test]
fn a_rival_takes_away_an_owner_that_was_first_confirmed_at_most_one_window_ago() {
    let [own, later, theirs] = [tenure("m", 1), tenure("r", 2), tenure("n", 1)];
    for (second, is_taken) in [(3, true), (4, false)] {
        let mut watch = watch();
        all_report(&mut watch, 0, &own);
        // A failover does not make the authority a new one.
        all_report(&mut watch, 2, &later);
        let rival = foreign(b'x', b"xyz", second, &theirs);
        assert_eq!(watch.handle_report(at(second), rival), is_taken);
        assert_eq!(watch.tenure().is_none(), is_taken);
        assert_eq!(watch.eligibility(&later) == Eligibility::NEVER, is_taken);
        assert!(watch.rivals().is_some());
        // The address leads to its own authority again.
        all_report(&mut watch, 9, &later);
        assert_eq!(watch.tenure(), Some(&later));
        assert_eq!(watch.eligibility(&later).ends_at(), at(9 + 3));
    }
}

/// It keeps its id, and the others of its old authority still list it.
#[test]
fn a_member_that_has_moved_does_not_join_two_authorities() {
    let [own, theirs] = [tenure("m", 1), tenure("n", 1)];
    let mut watch = watch_of(&own);
    all_report(&mut watch, 0, &own);
    hear_all(&mut watch, b"cxyz", b"cxyz", 1, &theirs);
    assert_eq!(watch.tenure(), Some(&own));
    assert!(watch.rivals().is_some());
    hear_all(&mut watch, b"cxyz", b"cxyz", 20, &theirs);
    // c alone is no majority of a, b and c. Two are none of four.
    assert_eq!(watch.tenure(), Some(&own));
    hear_all(&mut watch, b"abcd", b"abcd", 40, &own);
    hear_all(&mut watch, b"cdxy", b"cdxy", 60, &theirs);
    assert_eq!(watch.tenure(), Some(&own));
}

#[test]
fn members_that_are_replaced_one_by_one_stay_the_authority() {
    let mut watch = watch();
    let own = tenure("m", 1);
    let groups = [b"abc", b"bcd", b"cde", b"def"];
    for (second, group) in groups.into_iter().enumerate() {
        let second = 10 * second as u64;
        hear_all(&mut watch, group, group, second, &own);
        assert_eq!(watch.eligibility(&own).ends_at(), at(second + 3));
    }
    let promoted = tenure("r", 2);
    hear_all(&mut watch, b"efg", b"efg", 40, &promoted);
    assert_eq!(watch.tenure(), Some(&promoted));
    // Sentinels that are all set up anew at once, and name the same master.
    let another = tenure("r", 0);
    hear_all(&mut watch, b"xyz", b"xyz", 41, &another);
    assert_eq!(watch.rivals(), None);
    hear_all(&mut watch, b"xyz", b"xyz", 50, &another);
    assert_eq!(watch.tenure(), Some(&another));
    assert_eq!(watch.eligibility(&another).starts_at(), at(50 + 13));
}

/// Such as one that was removed, or that has lost its state.
#[test]
fn a_single_member_that_the_others_do_not_know_is_no_rival() {
    let [own, old] = [tenure("m", 2), tenure("n", 1)];
    for known in [&b"abcd"[..], b"d"] {
        let mut watch = OwnerWatch::new(watch().rule.with_fewest_members(3));
        all_report(&mut watch, 0, &own);
        hear(&mut watch, at(1), foreign(b'd', known, 1, &old));
        assert_eq!(watch.rivals(), None);
        all_report(&mut watch, 2, &own);
        assert_eq!(watch.eligibility(&own).ends_at(), at(2 + 3));
    }
}

#[test]
fn a_tenure_that_was_not_confirmed_for_long_begins_anew_if_epochs_do() {
    let first = tenure("m", 0);
    for (gap, begins_anew) in [(9, false), (10, true)] {
        let mut lasting = watch();
        let mut watch = watch().with_epochs_that_begin_anew();
        for watch in [&mut lasting, &mut watch] {
            all_report(watch, 0, &first);
            all_report(watch, gap, &first);
        }
        assert_eq!(lasting.eligibility(&first).starts_at(), at(13));
        let since = if begins_anew { gap } else { 0 };
        let starts_at = watch.eligibility(&first).starts_at();
        assert_eq!(starts_at, at(since + 13), "{gap}");
        // Members that have known the tenure meanwhile say so.
        for letter in *b"abc" {
            let age = 100 * SECOND;
            let report = report(letter, at(50), &first);
            hear(&mut watch, at(50), MemberReport { age, ..report });
        }
        assert!(watch.eligibility(&first).covers(at(50)));
    }
}

#[test]
fn a_marker_counts_only_for_its_tenure_and_while_epochs_grow_and_last() {
    let [lasting, again] = [watch(), watch().with_epochs_that_begin_anew()];
    for (watch, owners, epoch, counts) in [
        (&lasting, &["m"][..], 0, true),
        (&lasting, &["m"], 1, false),
        (&lasting, &["m", "n", "m"], 0, false),
        (&again, &["m"], 0, false),
    ] {
        let mut watch = watch.clone();
        for (second, owner) in (20..).step_by(20).zip(owners) {
            all_report(&mut watch, second, &tenure(owner, 0));
        }
        watch.handle_marker(at(90), &tenure("m", epoch), 90 * SECOND);
        let counted_from = if counts { 0 } else { 20 * owners.len() as u64 };
        let starts_at = watch.eligibility(&tenure("m", 0)).starts_at();
        assert_eq!(starts_at, at(counted_from + 13), "{owners:?} {epoch}");
    }
}

#[test]
fn a_list_that_several_members_know_is_kept_once() {
    let mut watch = watch();
    all_report(&mut watch, 0, &tenure("m", 1));
    let lists: Vec<_> = watch.reports.values().map(|it| &it.members).collect();
    assert!(lists.iter().all(|it| it.is_clone_of(lists[0])));
}
