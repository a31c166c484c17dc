//! Faults that are seeded in the code, and the scenarios that must find them.

use super::{
    Fault,
    ending::TIMERS_END,
    explore::{Choice, Scenario},
    extending::{EXTENSION_AGAINST_WITHDRAWAL, RENEWAL_AGAINST_WITHDRAWAL},
    handing_over::CANCEL_AGAINST_HANDOVER,
    locking::SEVERAL_VISITORS,
    world::World,
};
use crate::LockOptions;

/// Checks that a scenario finds a fault within this many schedules of one kind or the other, and that a schedule that
/// fails fails again.
fn expect_found(fault: Fault, scenario: &Scenario, within: usize) {
    fault.during(|| {
        let mut found = false;
        for choice in [Choice::Random, Choice::Pct] {
            let Err(failure) = scenario.search(choice, 0, within) else {
                println!("{fault:?}: not found by {choice:?} in {}", scenario.name);
                continue;
            };
            println!(
                "{fault:?}: schedule {} of {choice:?} in {}",
                failure.after, scenario.name
            );
            found = true;
            let again = std::panic::catch_unwind(|| scenario.replay(&failure.schedule));
            assert!(again.is_err(), "{} does not repeat", failure.schedule);
        }
        assert!(found, "{} does not find {fault:?}", scenario.name);
    });
}

/// Two clients that do not share their nodes.
const TWO_HOLDERS: Scenario = Scenario {
    name: "two_holders_of_one_key",
    run: || {
        let (one, other) = (World::new(), World::new());
        let guards = [&one, &other].map(|world| world.hold("k", LockOptions::new()));
        for guard in &guards {
            one.referee.enter(guard);
        }
    },
    sometimes: &[],
};

#[test]
fn two_holders_are_found() {
    assert!(TWO_HOLDERS.search(Choice::Random, 0, 1).is_err());
}

#[test]
fn a_lock_that_a_cancelled_waiter_forgets_is_found() {
    expect_found(Fault::ForgetsUntakenLock, &CANCEL_AGAINST_HANDOVER, 1000);
}

#[test]
fn a_waker_that_is_stored_too_late_is_found() {
    expect_found(Fault::StoresWakerLate, &SEVERAL_VISITORS, 1000);
}

#[test]
fn a_holder_that_registers_too_late_is_found() {
    expect_found(Fault::RegistersLate, &EXTENSION_AGAINST_WITHDRAWAL, 1000);
}

#[test]
fn a_deadline_in_timers_that_have_ended_is_found() {
    expect_found(Fault::SetsDeadlineInClosedTimers, &TIMERS_END, 1000);
}

#[test]
fn a_lease_that_the_timers_call_back_and_that_misses_a_withdrawal_is_found() {
    expect_found(
        Fault::ForgetsLeasesInHand,
        &RENEWAL_AGAINST_WITHDRAWAL,
        1000,
    );
}
