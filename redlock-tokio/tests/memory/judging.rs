//! Short stories by which a reader can check the judge of the soak and of the simulator, and the ends of holds that the
//! soak's workers report to it.

mod ends;

use std::time::Duration;

use redlock_tokio::FencingToken;

use crate::judge::{End, Grant, Judge, Violation};

const TOLERANCE: u64 = 10;

fn judge() -> Judge {
    Judge::new(Duration::from_nanos(TOLERANCE))
}

/// Returns what the judge says of grants whose holds end by their validity.
fn of(grants: impl IntoIterator<Item = Grant>) -> Vec<Violation> {
    let mut judge = judge();
    for grant in grants {
        judge.granted(grant);
    }
    judge.violations()
}

#[test]
fn two_holds_overlap_by_an_instant() {
    assert_eq!(of([grant("x", 0, 100), grant("y", 100, 200)]), []);
    assert_eq!(of([grant("x", 0, 101), grant("y", 100, 200)]).len(), 1);
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
fn the_longest_extension_counts() {
    for (until, found) in [(50, 1), (100, 1), (101, 2)] {
        let mut judge = judge();
        let hold = judge.granted(grant("x", 0, 70));
        judge.granted(grant("y", 69, 80));
        judge.granted(grant("z", 100, 120));
        for extension in [until, 60] {
            judge.extended(hold, extension);
        }
        assert_eq!(judge.violations().len(), found, "extended to {until}");
    }
}

#[test]
fn a_hold_that_was_over_at_its_grant_violates_nothing() {
    let late = grant("x", 50, 50).fenced(9);
    assert_eq!(of([grant("y", 0, 100).fenced(1), late.clone()]), []);
    assert_eq!(of([late, grant("y", 60, 100).fenced(1)]), []);
    let mut judge = judge();
    let hold = judge.granted(grant("x", 50, 60));
    judge.granted(grant("y", 0, 100));
    judge.ended(hold, End::Died, 49);
    assert_eq!(judge.violations(), []);
}

#[test]
fn a_hold_that_ended_at_its_grant_is_an_instant() {
    for (at, found) in [(0, 0), (1, 1), (99, 1), (100, 0)] {
        let mut judge = judge();
        judge.granted(grant("x", 0, 100));
        let hold = judge.granted(grant("y", at, 200));
        judge.ended(hold, End::Released, at);
        assert_eq!(judge.violations().len(), found, "an instant at {at}");
    }
}

#[test]
fn each_key_is_judged_by_itself() {
    let both = grant("x", 0, 100).of(&["a", "b"]).fenced(5);
    assert_eq!(
        of([both.clone(), grant("y", 50, 60).of(&["c"]).fenced(1)]),
        []
    );
    let found = of([both, grant("y", 50, 60).of(&["b", "c"]).fenced(1)]);
    let [
        Violation::TwoHolders { key, .. },
        Violation::FenceDidNotGrow { key: fenced, .. },
    ] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!([&**key, fenced], ["b", "b"]);
}

#[test]
fn holds_are_judged_in_the_order_of_their_grants_and_not_of_the_news() {
    let late_news = [grant("y", 50, 60).fenced(2), grant("x", 0, 49).fenced(1)];
    assert_eq!(of(late_news), []);
    let found = of([grant("y", 50, 60).fenced(1), grant("x", 0, 51).fenced(2)]);
    assert!(found.iter().all(|it| it.at() == 50), "{found:?}");
    assert_eq!(found.len(), 2);
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
    assert_eq!(late("x", 110, 300), 0, "it ran for 10");
    assert_eq!(late("x", 111, 300), 1);
    let mut judge = judge();
    let hold = judge.granted(grant("x", 0, 100));
    judge.ended(hold, End::Lost { told }, told);
    for (from, until) in [(150, 190), (100, 160)] {
        judge.stood_still("x", from, until);
    }
    assert_eq!(judge.violations(), [], "stops overlap");
    // Its validity was over when it was told of the lock.
    let late = judge.granted(grant("y", 500, 100));
    judge.ended(late, End::Lost { told: 510 }, 510);
    assert_eq!(judge.violations(), []);
}

/// Returns a grant of the key `a` to this client.
fn grant(client: &str, at: u64, valid_until: u64) -> Grant {
    Grant {
        client: client.into(),
        keys: vec!["a".into()],
        at,
        valid_until,
        fence: None,
        is_shared: false,
    }
}

impl Grant {
    fn of(self, keys: &[&str]) -> Self {
        Self {
            keys: keys.iter().map(|it| (*it).into()).collect(),
            ..self
        }
    }

    fn fenced(self, fence: u64) -> Self {
        Self {
            fence: Some(FencingToken::new(fence)),
            ..self
        }
    }

    fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }
}
