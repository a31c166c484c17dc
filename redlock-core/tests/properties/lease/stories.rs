//! What every lease tells from its beginning to its end, and that random lives tell all of it.

use super::*;

#[test]
fn every_life_tells_one_story() {
    check_lives(800, |driven| {
        let told: Vec<_> = events(driven).map(|(_, event)| event).collect();
        let is_acquired = |it: &&Event| matches!(it, Event::Acquired { .. });
        let mut ends = driven.log.iter().filter_map(Entry::end);
        let end = ends.next().expect("every lease ends");
        prop_assert_eq!(ends.next(), None, "and only once");
        let has_held = matches!(end, End::Lost(_) | End::Released(_));
        let acquired = told.iter().filter(is_acquired).count();
        prop_assert_eq!(acquired, usize::from(has_held), "{:?}", end);
        let is_first = told.first().is_none_or(|it| is_acquired(&it));
        prop_assert!(is_first, "{told:?}");
        let gives_up = |it: &Entry| it.input == Input::Release && it.end() == Some(End::GivenUp);
        let is_given_up = driven.log.iter().any(gives_up);
        prop_assert_eq!(end == End::GivenUp, is_given_up);
        // One that never asks holds nothing.
        let asks = |it: &Entry| matches!(it.input, Input::Acquire | Input::AcquireFenced(_));
        prop_assert!(!has_held || driven.log.iter().any(asks));
        Ok(())
    });
}

/// Never vacuous: the random lives reach what they are meant to test.
#[test]
fn lives_reach_every_kind_of_event() {
    use End::{Exhausted, Lost, Released};
    use Event::{Acquired, ExtendFailed, Extended};
    type Kind = fn(Option<&Event>, Option<End>) -> bool;
    let kinds: [(&str, Kind); 9] = [
        ("fenced", |it, _| {
            matches!(it, Some(Acquired { fence: Some(_), .. }))
        }),
        ("extended", |it, _| matches!(it, Some(Extended { .. }))),
        ("extend failed", |it, _| {
            matches!(it, Some(ExtendFailed { .. }))
        }),
        ("expired", |_, it| it == Some(Lost(LossReason::Expired))),
        ("max hold", |_, it| it == Some(Lost(LossReason::MaxHold))),
        ("keys lost", |_, it| it == Some(Lost(LossReason::KeysLost))),
        ("released", |_, it| {
            it == Some(Released(ReleaseVerdict::Released))
        }),
        ("retried", |_, it| {
            matches!(it, Some(Exhausted { tries: 2.., .. }))
        }),
        ("quarantined", |_, it| {
            let quarantined = |failure| matches!(failure, AcquireFailure::Quarantined { .. });
            matches!(it, Some(Exhausted { failure, .. }) if quarantined(failure))
        }),
    ];
    let mut runner = TestRunner::deterministic();
    let mut seen = [0; 9];
    let (mut fenced, mut repaired) = (0, 0);
    for _ in 0..1000 {
        let life = lives().new_tree(&mut runner).expect("no filters").current();
        let mut driven = Driven::through(&life);
        driven.finish();
        for (seen, (_, kind)) in seen.iter_mut().zip(kinds) {
            let mut log = driven.log.iter();
            *seen += u32::from(log.any(|it| kind(it.told.first(), it.end())));
        }
        let mut sent = requests(&driven);
        fenced += u32::from(sent.any(|(_, it)| matches!(it, Operation::Fence { .. })));
        let is_acquire = |it| matches!(it, Operation::Acquire { .. });
        let mut sent = requests(&driven);
        repaired += u32::from(sent.any(|(entry, it)| is_held(entry) && is_acquire(it)));
    }
    println!("{fenced} outbid, {repaired} repaired, {seen:?}");
    for (seen, (name, _)) in seen.iter().zip(kinds) {
        assert!(*seen >= 5, "{name}: {seen} of 1000 lives");
    }
    assert!(fenced >= 5 && repaired >= 5);
}
