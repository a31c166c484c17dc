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
    reference::{self, Ended, Extension, Finding, Look, Stop, Tale},
    said::grant,
};
use crate::judge::{End, Grant, HoldId, Judge};

const TOLERANCE: u64 = 3;

/// The last time of a story.
const LAST: u64 = 60;

#[derive(Clone, Debug)]
struct Story {
    /// In the order in which they are reported.
    tales: Vec<Tale>,
    stops: Vec<Stop>,
    looks: Vec<Look>,
}

/// News, in the order in which those of one instant are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Stop(usize),
    Look(usize),
    Grant(usize),
    Extension(usize),
    Downgrade(usize),
    End(usize),
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
        any::<bool>(),
    );
    let shares = (any::<bool>(), option::of(0..15_u64));
    let more = (
        option::of((0..15_u64, 0..10_u64)),
        option::of(end()),
        shares,
    );
    (granted, more).prop_map(|(granted, (extension, end, (is_shared, downgrade)))| {
        let (client, keys, at, length, fence, watches) = granted;
        let grant = grant(&client, at, at + length).of(&keys);
        let grant = match fence {
            // Mostly they grow.
            Some(more) => grant.fenced(100 + at * 2 + more),
            None => grant,
        };
        let grant = Grant {
            watches,
            is_shared,
            ..grant
        };
        // An extension comes within the validity.
        let extension = extension
            .filter(|_| length > 0)
            .map(|(after, by)| Extension {
                at: at + after % length,
                valid_until: at + length + by,
            });
        let since = extension.map_or(at, |it| it.at);
        let end = end.map(|(how, after, told)| Ended {
            how: match how {
                0 => End::Released,
                1 => End::Died,
                _ => End::Lost {
                    told: since + after + told,
                },
            },
            at: since + after,
        });
        let downgraded_at = downgrade.map(|after| at + after);
        let downgraded_at = downgraded_at.filter(|it| end.is_none_or(|end| *it <= end.at));
        Tale {
            grant,
            extension,
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
    let looks = (vec(0..LAST, 0..4), 0..10_u64).prop_map(|(mut times, lag)| {
        times.sort_unstable();
        let look = |at: u64| Look {
            at,
            heard: at + lag,
        };
        times.into_iter().map(look).collect()
    });
    (vec(tale(), 0..8), vec(stop, 0..3), looks).prop_map(|(tales, stops, looks)| Story {
        tales,
        stops,
        looks,
    })
}

/// Returns the findings of the judge in order.
fn findings(judge: &Judge) -> Vec<Finding> {
    let mut found: Vec<_> = judge.violations().into_iter().map(Finding::from).collect();
    found.sort();
    found
}

fn new_judge() -> Judge {
    Judge::new(Duration::from_nanos(TOLERANCE))
}

fn check(name: &str, strategy: impl Strategy<Value = Story>, test: impl Fn(Story)) {
    let cases = Config::default().cases.max(1000);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&strategy, |story| {
        test(story);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn the_judge_finds_what_the_reference_finds_in_any_order() {
    let all = Cell::new([0; 4]);
    check("any order", story(), |story| {
        let mut judge = new_judge();
        for it in &story.stops {
            judge.stood_still(&it.client, it.from, it.until);
        }
        let mut tales = Vec::new();
        for tale in story.tales {
            let id = judge.granted(tale.grant.clone());
            if let Some(end) = tale.end {
                judge.ended(id, end.how, end.at);
            }
            if let Some(extension) = tale.extension {
                judge.extended(id, extension.valid_until);
            }
            if let Some(at) = tale.downgraded_at {
                judge.shared(id, at);
            }
            tales.push((id, tale));
        }
        let expected = reference::judge(&tales, &story.stops, &[], TOLERANCE);
        assert_eq!(findings(&judge), expected);
        count(&all, &expected);
    });
    let [two, fences, late, _] = all.get();
    assert!(two > 0 && fences > 0 && late > 0, "{:?}", all.get());
}

#[test]
fn the_judge_finds_what_the_reference_finds_though_it_forgets() {
    let all = Cell::new([0; 4]);
    let in_time = story().prop_map(|mut story| {
        for tale in &mut story.tales {
            // An earlier time cannot be reported after it is forgotten.
            if let Some(Ended {
                how: End::Lost { told },
                at,
            }) = &mut tale.end
            {
                *at = *told;
            }
        }
        story
    });
    check("in the order of time", in_time, |story| {
        let (judge, tales) = tell_in_time(&story);
        let expected = reference::judge(&tales, &story.stops, &story.looks, TOLERANCE);
        assert_eq!(findings(&judge), expected);
        count(&all, &expected);
        forgets_all(judge, &tales);
    });
    assert!(!all.get().contains(&0), "{:?}", all.get());
}

/// Reports a story in the order of its times, and forgets at each look.
fn tell_in_time(story: &Story) -> (Judge, Vec<(HoldId, Tale)>) {
    let mut judge = new_judge();
    let parts = parts(&story.stops, &story.looks);
    let mut news: Vec<(u64, News)> = Vec::new();
    let looks = story.looks.iter().enumerate();
    news.extend(looks.map(|(number, it)| (it.heard, News::Look(number))));
    let stops = parts.iter().enumerate();
    news.extend(stops.map(|(number, it)| (it.until, News::Stop(number))));
    for (number, tale) in story.tales.iter().enumerate() {
        news.push((tale.grant.at, News::Grant(number)));
        let extension = tale.extension.iter();
        news.extend(extension.map(|it| (it.at, News::Extension(number))));
        let downgrade = tale.downgraded_at.into_iter();
        news.extend(downgrade.map(|at| (at, News::Downgrade(number))));
        let end = tale.end_is_told_at().into_iter();
        news.extend(end.map(|at| (at, News::End(number))));
    }
    news.sort_unstable();
    let mut ids = vec![None; story.tales.len()];
    for (_, what) in news {
        let id_of = |number: usize| ids[number].expect("the grant is the first news of a hold");
        match what {
            News::Stop(number) => {
                let Stop {
                    client,
                    from,
                    until,
                } = &parts[number];
                judge.stood_still(client, *from, *until);
            }
            News::Look(number) => judge.forget_before(story.looks[number].at),
            News::Grant(number) => {
                ids[number] = Some(judge.granted(story.tales[number].grant.clone()));
            }
            News::Extension(number) => {
                let valid_until = story.tales[number].extension.map(|it| it.valid_until);
                judge.extended(id_of(number), valid_until.expect("there is one"));
            }
            News::Downgrade(number) => {
                let at = story.tales[number].downgraded_at.expect("there is one");
                judge.shared(id_of(number), at);
            }
            News::End(number) => {
                let end = story.tales[number].end.expect("there is one");
                judge.ended(id_of(number), end.how, end.at);
            }
        }
    }
    let tales = story.tales.iter().cloned().enumerate();
    let with_id = |(number, tale): (usize, Tale)| (ids[number].expect("granted"), tale);
    (judge, tales.map(with_id).collect())
}

/// Divides stops at the looks.
fn parts(stops: &[Stop], looks: &[Look]) -> Vec<Stop> {
    let mut parts = Vec::new();
    for stop in stops {
        let mut from = stop.from;
        let looks = looks.iter().map(|it| it.at);
        let within = looks.filter(|it| (stop.from..stop.until).contains(it));
        for until in within.chain([stop.until]) {
            let client = stop.client.clone();
            parts.push(Stop {
                client,
                from,
                until,
            });
            from = until;
        }
    }
    parts
}

/// Asserts that the judge can forget all holds that have ended.
fn forgets_all(mut judge: Judge, tales: &[(HoldId, Tale)]) {
    let open = tales.iter().filter(|(_, it)| it.end.is_none()).count();
    judge.forget_before(u64::MAX);
    assert_eq!(judge.remembered(), open);
}

fn count(all: &Cell<[u32; 4]>, findings: &[Finding]) {
    let mut counts = all.get();
    for finding in findings {
        counts[match finding {
            Finding::TwoHolders(..) => 0,
            Finding::FenceDidNotGrow(..) => 1,
            Finding::ToldLate { .. } => 2,
            Finding::NotTold { .. } => 3,
        }] += 1;
    }
    all.set(counts);
}
