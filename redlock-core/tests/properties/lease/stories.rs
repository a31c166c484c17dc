//! What every lease tells from its beginning to its end, and that random lives tell all of it.

use super::*;

#[test]
fn every_life_tells_one_story() {
    check_lives(800, |driven| {
        let begun = driven.log.iter().find_map(|entry| match entry.input {
            Input::Acquire | Input::AcquireFenced(_) => Some(true),
            // Closed before it began.
            Input::Release => Some(false),
            _ => None,
        });
        let given_up = driven.log.iter().any(|entry| {
            entry.input == Input::Release
                && !entry.before.is_closed()
                && entry.before.valid_until(Timestamp::ZERO).is_none()
        });
        let told: Vec<_> = events(driven).map(|(_, event)| event).collect();
        let number = |test: fn(&Event) -> bool| told.iter().filter(|event| test(event)).count();
        let acquired = number(|event| matches!(event, Event::Acquired { .. }));
        let ended = number(|event| matches!(event, Event::Lost(_) | Event::Released(_)));
        let exhausted = number(|event| matches!(event, Event::Exhausted { .. }));
        prop_assert!(acquired <= 1);
        prop_assert_eq!(ended, acquired, "who acquired loses or releases, once");
        if begun != Some(true) {
            prop_assert!(told.is_empty());
        } else if acquired == 1 {
            prop_assert_eq!(exhausted, 0);
            let first = matches!(told.first(), Some(Event::Acquired { .. }));
            let last = matches!(told.last(), Some(Event::Lost(_) | Event::Released(_)));
            prop_assert!(first && last, "{told:?}");
        } else {
            // An attempt that is given up ends without an event.
            prop_assert_eq!(exhausted, usize::from(!given_up));
            prop_assert_eq!(told.len(), exhausted);
        }
        Ok(())
    });
}

/// Never vacuous: the random lives reach what they are meant to test.
#[test]
fn lives_reach_every_kind_of_event() {
    use Event::{Acquired, Exhausted, ExtendFailed, Extended, Lost, Released};
    type Kind = fn(&Event) -> bool;
    let kinds: [(&str, Kind); 9] = [
        ("fenced", |it| matches!(it, Acquired { fence: Some(_), .. })),
        ("extended", |it| matches!(it, Extended { .. })),
        ("extend failed", |it| matches!(it, ExtendFailed { .. })),
        ("expired", |it| *it == Lost(LossReason::Expired)),
        ("max hold", |it| *it == Lost(LossReason::MaxHold)),
        ("keys lost", |it| *it == Lost(LossReason::KeysLost)),
        ("released", |it| *it == Released(ReleaseVerdict::Released)),
        ("retried", |it| matches!(it, Exhausted { tries: 2.., .. })),
        ("quarantined", |it| {
            let quarantined = |failure: &_| matches!(failure, AcquireFailure::Quarantined { .. });
            matches!(it, Exhausted { failure, .. } if quarantined(failure))
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
            *seen += u32::from(events(&driven).any(|(_, event)| kind(&event)));
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
