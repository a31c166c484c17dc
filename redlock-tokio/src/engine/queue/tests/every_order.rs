//! Every order of events for some casts of leases, of one key or of several.

mod world;

use std::collections::{HashSet, VecDeque};

use Role::{Adopter, Lock, LoneReader, Reader, Writer};

use self::world::{Mutant, Step, World};
use super::*;

/// The sets of keys that one actor locks, each while it holds those before. Then it releases all of them.
type Part = &'static [&'static str];

const A: Part = &["a"];

/// The roles of the actors, and the keys that they lock.
type Cast = (&'static [Role], &'static [Part]);

/// Several keys beside single ones, sets of keys that overlap, and holders that lock again.
const CASTS: [Cast; 7] = [
    (&[Lock; 4], &[&["ab"], &["a"], &["a"], &["b"]]),
    (&[Lock; 4], &[&["ab"], &["ab"], &["a"], &["b"]]),
    (&[Lock; 4], &[&["ab"], &["bc"], &["ac"], &["b"]]),
    (&[Lock; 4], &[&["ab"], &["b", "a"], &["a"], &["a"]]),
    (&[Lock; 3], &[&["ab"], &["b", "ac"], &["a"]]),
    (&[Writer, Lock, Reader], &[A, &["ab"], A]),
    (&[Writer, Lock, Lock], &[A, &["ab"], &["b"]]),
];

/// Locks of one key. What happens to them is simple, so more may happen: a lock is not granted, a waiter gives up
/// while the lock is handed over to it, and one that came before others joins the queue after them.
const OF_ONE_KEY: [Cast; 5] = [
    (&[Lock; 3], &[A; 3]),
    (&[Reader, Writer, Reader, Lock], &[A; 4]),
    (&[Reader, Reader, LoneReader, Writer], &[A; 4]),
    (&[Writer, Writer, Lock, Reader], &[A; 4]),
    (&[Adopter, Lock, Reader, Lock], &[A; 4]),
];

/// Returns how many states any order of events leads to, or what is wrong in one of them.
fn explore(
    cast: Cast,
    hands_over: bool,
    mutant: Mutant,
) -> Result<usize, (Vec<Step>, &'static str)> {
    let mut seen = HashSet::new();
    let start = World::new(cast, hands_over, mutant);
    let mut worlds = VecDeque::from([(start, Vec::new())]);
    while let Some((world, path)) = worlds.pop_front() {
        for step in world.steps() {
            let mut next = world.copy();
            next.take(step);
            if next.fault.is_none() && !seen.insert(next.state()) {
                continue;
            }
            let path = [&path[..], &[step]].concat();
            if let Some(fault) = next.fault() {
                return Err((path, fault));
            }
            worlds.push_back((next, path));
        }
    }
    Ok(seen.len())
}

/// Returns the casts, without handover and with it.
fn casts() -> impl Iterator<Item = (Cast, bool)> {
    let casts = OF_ONE_KEY.into_iter().chain(CASTS);
    casts.flat_map(|cast| [(cast, false), (cast, true)])
}

#[test]
fn every_order_of_events_serves_all() {
    let mut states = 0;
    for (cast, hands_over) in casts() {
        states += explore(cast, hands_over, Mutant::None)
            .unwrap_or_else(|(path, fault)| panic!("{cast:?} {hands_over}: {fault}: {path:?}"));
        println!("{states} states");
    }
    assert!(states > 10_000, "{states}");
}

#[test]
fn every_order_of_events_finds_what_is_done_wrong() {
    for (mutant, fault) in [
        (Mutant::NeverLooksAgain, "waits for keys that are free"),
        (Mutant::ForgetsOthers, "the queue is not of those that wait"),
        (
            Mutant::KeepsInOtherSlices,
            "has a key that is kept for another",
        ),
        (Mutant::ServesInOrder, "not served in order of arrival"),
        (Mutant::ReadersWaitForNobody, "two have one key"),
        (Mutant::ReadersJoinAnybody, "two have one key"),
        (Mutant::LetsNobodyIn, "a reader asks where it could join"),
        (Mutant::HidesHolds, "waits for keys that are free"),
        (Mutant::KeepsTurn, "the queue is not of those that wait"),
        (Mutant::HidesDowngrade, "a reader asks where it could join"),
    ] {
        let found = casts().find_map(|(cast, hands_over)| {
            let (path, found) = explore(cast, hands_over, mutant).err()?;
            (found == fault).then_some(path)
        });
        println!("{mutant:?}: {fault}: {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}
