//! Random stories, judged by the judge and by the reference.

use std::{cell::Cell, time::Duration};

use proptest::{
    collection::vec,
    option,
    prelude::{Strategy, any},
    prop_oneof,
    sample::subsequence,
    test_runner::{Config, TestRunner},
};

use super::{
    reference::{self, Ended, Finding, Stop, Tale},
    said::grant,
};
use crate::judge::{End, Grant, Judge};

const TOLERANCE: u64 = 3;

/// The last time of a story.
const LAST: u64 = 60;

#[derive(Clone, Debug)]
struct Story {
    /// In the order in which they are reported.
    tales: Vec<Tale>,
    stops: Vec<Stop>,
}

fn client() -> impl Strategy<Value = String> {
    prop_oneof!["x", "y"]
}

fn end() -> impl Strategy<Value = (u8, u64, u64)> {
    (0..3_u8, 0..30_u64, 0..8_u64)
}

fn tale() -> impl Strategy<Value = Tale> {
    let granted = (
        client(),
        subsequence(vec!["a", "b", "c"], 1..=2),
        0..LAST / 2,
        // Sometimes the grant comes too late.
        prop_oneof![1 => 0..2_u64, 4 => 1..15_u64],
        option::of(0..4_u64),
    );
    let shares = (any::<bool>(), option::of(0..15_u64));
    let more = (option::of(0..10_u64), option::of(end()), shares);
    (granted, more).prop_map(|(granted, (extension, end, (is_shared, downgrade)))| {
        let (client, keys, at, length, fence) = granted;
        let grant = grant(&client, at, at + length).of(&keys);
        let grant = match fence {
            // Mostly they grow.
            Some(more) => grant.fenced(100 + at * 2 + more),
            None => grant,
        };
        let grant = Grant { is_shared, ..grant };
        let extension = extension.filter(|_| length > 0);
        let end = end.map(|(how, after, told)| Ended {
            how: match how {
                0 => End::Released,
                1 => End::Died,
                _ => End::Lost {
                    told: at + after + told,
                },
            },
            at: at + after,
        });
        let downgraded_at = downgrade.map(|after| at + after);
        let downgraded_at = downgraded_at.filter(|it| end.is_none_or(|end| *it <= end.at));
        Tale {
            grant,
            extended_until: extension.map(|by| at + length + by),
            downgraded_at,
            end,
        }
    })
}

fn story() -> impl Strategy<Value = Story> {
    let stop = (client(), 0..LAST, 0..10_u64).prop_map(|(client, from, length)| Stop {
        client,
        from,
        until: from + length,
    });
    (vec(tale(), 0..8), vec(stop, 0..3)).prop_map(|(tales, stops)| Story { tales, stops })
}

/// Returns the findings of the judge in order.
fn findings(judge: &Judge) -> Vec<Finding> {
    let mut found: Vec<_> = judge.violations().into_iter().map(Finding::from).collect();
    found.sort();
    found
}

#[test]
fn the_judge_finds_what_the_reference_finds() {
    let all = Cell::new([0; 3]);
    let mut runner = TestRunner::new(Config {
        cases: Config::default().cases.max(1000),
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&story(), |story| {
        let mut judge = Judge::new(Duration::from_nanos(TOLERANCE));
        for it in &story.stops {
            judge.stood_still(&it.client, it.from, it.until);
        }
        let mut tales = Vec::new();
        for tale in story.tales {
            let id = judge.granted(tale.grant.clone());
            if let Some(end) = tale.end {
                judge.ended(id, end.how, end.at);
            }
            if let Some(until) = tale.extended_until {
                judge.extended(id, until);
            }
            if let Some(at) = tale.downgraded_at {
                judge.shared(id, at);
            }
            tales.push((id, tale));
        }
        let expected = reference::judge(&tales, &story.stops, TOLERANCE);
        assert_eq!(findings(&judge), expected);
        let mut counts = all.get();
        for finding in expected {
            counts[match finding {
                Finding::TwoHolders(..) => 0,
                Finding::FenceDidNotGrow(..) => 1,
                Finding::ToldLate { .. } => 2,
            }] += 1;
        }
        all.set(counts);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(!all.get().contains(&0), "{:?}", all.get());
}
