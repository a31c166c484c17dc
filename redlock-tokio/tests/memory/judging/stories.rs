//! Short stories by which a reader can check both the judge and its reference.

use std::time::Duration;

use super::said::grant;
use crate::judge::{End, Judge, Violation};

const TOLERANCE: u64 = 10;

fn judge() -> Judge {
    Judge::new(Duration::from_nanos(TOLERANCE))
}

/// Returns what the judge says of grants whose holds end by their validity.
fn of(grants: impl IntoIterator<Item = crate::judge::Grant>) -> Vec<Violation> {
    let mut judge = judge();
    for grant in grants {
        judge.granted(grant);
    }
    judge.violations()
}

#[test]
fn two_holds_overlap_by_an_instant() {
    assert_eq!(of([grant("x", 0, 100), grant("y", 100, 200)]), []);
    let found = of([grant("x", 0, 101), grant("y", 100, 200)]);
    let Violation::TwoHolders { first, second, .. } = &found[0] else {
        panic!("{found:?}")
    };
    assert_eq!((&*first.client, first.from, first.until), ("x", 0, 101));
    assert_eq!((&*second.client, second.from), ("y", 100));
    assert_eq!(found.len(), 1);
}

#[test]
fn readers_overlap_with_readers_and_with_nobody_else() {
    let reader = |client, at, until| grant(client, at, until).shared();
    assert_eq!(of([reader("x", 0, 100), reader("y", 50, 200)]), []);
    assert_eq!(of([reader("x", 0, 100), grant("y", 100, 200)]), []);
    assert_eq!(of([reader("x", 0, 100), grant("y", 99, 200)]).len(), 1);
    assert_eq!(of([grant("x", 0, 100), reader("y", 99, 200)]).len(), 1);
    let readers = [reader("x", 0, 100), reader("y", 0, 100)];
    assert_eq!(of(readers.into_iter().chain([grant("z", 50, 60)])).len(), 2);
}

#[test]
fn a_writer_that_becomes_a_reader_overlaps_with_later_readers() {
    for (downgrade, found) in [(49, 0), (50, 0), (51, 1)] {
        let mut judge = judge();
        let writer = judge.granted(grant("x", 0, 100));
        judge.granted(grant("y", 50, 60).shared());
        judge.shared(writer, downgrade);
        assert_eq!(judge.violations().len(), found, "downgraded at {downgrade}");
        judge.granted(grant("z", 60, 70));
        assert_eq!(judge.violations().len(), found + 1, "a writer beside it");
    }
}

#[test]
fn a_release_ends_a_hold() {
    for (end, found) in [(49, 0), (50, 0), (51, 1)] {
        let mut judge = judge();
        let hold = judge.granted(grant("x", 0, 100));
        judge.granted(grant("y", 50, 60));
        judge.ended(hold, End::Released, end);
        assert_eq!(judge.violations().len(), found, "ended at {end}");
    }
}

#[test]
fn tokens_grow_from_hold_to_hold() {
    let tokens = |first, second, third| {
        of([
            grant("x", 0, 10).fenced(first),
            grant("y", 20, 30).fenced(second),
            grant("z", 40, 50).fenced(third),
        ])
    };
    assert_eq!(tokens(1, 2, 3), []);
    assert_eq!(tokens(1, 1, 3).len(), 1, "equal tokens do not grow");
    assert_eq!(tokens(1, 3, 2).len(), 1);
    let found = tokens(5, 4, 5);
    assert_eq!(found.len(), 2, "each is compared with the largest");
    for violation in found {
        let Violation::FenceDidNotGrow { key, earlier, .. } = violation else {
            panic!("{violation:?}")
        };
        assert_eq!((&*key, earlier.fence.get()), ("a", 5));
    }
}

#[test]
fn a_holder_is_told_of_the_loss_within_the_tolerance() {
    for (told, found) in [(90, 0), (100 + TOLERANCE, 0), (101 + TOLERANCE, 1)] {
        let mut judge = judge();
        let hold = judge.granted(grant("x", 0, 100));
        judge.ended(hold, End::Lost { told }, told);
        assert_eq!(judge.violations().len(), found, "told at {told}");
    }
    let mut judge = judge();
    let hold = judge.granted(grant("x", 0, 100));
    judge.ended(hold, End::Released, 500);
    assert_eq!(judge.violations(), [], "a late release is no late news");
}

#[test]
fn the_time_in_which_a_process_stands_still_is_not_lateness() {
    let told = 200;
    let late = |client: &str, from, until| {
        let mut judge = judge();
        let hold = judge.granted(grant("x", 0, 100));
        judge.ended(hold, End::Lost { told }, told);
        judge.stood_still(client, from, until);
        judge.violations().len()
    };
    assert_eq!(late("x", 90, 300), 0);
    assert_eq!(late("x", 100, 190), 0);
    assert_eq!(late("x", 100, 189), 1);
    assert_eq!(late("y", 90, 300), 1, "another process");
    assert_eq!(late("x", 0, 100), 1, "another time");
}

#[test]
#[should_panic(expected = "has ended already")]
fn a_hold_ends_once() {
    let mut judge = judge();
    let hold = judge.granted(grant("x", 0, 20));
    judge.ended(hold, End::Released, 5);
    judge.ended(hold, End::Died, 6);
}

#[test]
fn violations_are_told_in_words() {
    const SECOND: u64 = 1_000_000_000;
    let mut judge = judge();
    let first = judge.granted(grant("x", SECOND, 3 * SECOND).fenced(7));
    judge.granted(grant("y", 2 * SECOND, 4 * SECOND).fenced(7));
    let told = 5 * SECOND;
    judge.ended(first, End::Lost { told }, told);
    let said: Vec<_> = judge.violations().iter().map(|it| it.to_string()).collect();
    let (x, y) = (
        "x from 1.000000000 s until 3.000000000 s",
        "y from 2.000000000 s until 4.000000000 s",
    );
    assert_eq!(
        said,
        [
            format!("two holders of a: {x}, and {y}"),
            format!("told of the loss at 5.000000000 s, 2.000000000 s after the end: {x}"),
            format!(
                "fencing tokens of a do not grow: {x} with the token 7, and later {y} with the token 7"
            ),
        ]
    );
}
