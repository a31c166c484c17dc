//! The end of a process: an orderly shutdown, and a runtime that is dropped.

use shuttle::{future, thread};

use super::{
    explore::{Scenario, sometimes},
    world::{Visit, World},
};
use crate::{LockError, LockOptions, LossReason, ShutdownReport};

const SHUTDOWN_AGAINST_JOIN: Scenario = Scenario {
    name: "shutdown_against_join",
    run: || {
        let world = World::new();
        let visits = [0; 3].map(|_| world.visit("k", LockOptions::new()));
        let redlock = world.redlock.clone();
        let shutdown = thread::spawn(move || redlock.refuse_locks());
        let served = visits.map(|it| was_served(it.join().unwrap()));
        sometimes(
            "some are served",
            served.contains(&true) && served.contains(&false),
        );
        sometimes("none is served", !served.contains(&true));
        shutdown.join().unwrap();
        assert!(!was_served(
            world.visit("k", LockOptions::new()).join().unwrap()
        ));
        world.end();
    },
    sometimes: &["some are served", "none is served"],
};

/// The whole shutdown, while waiters come and the holder releases its lock. The report may count a release that was
/// made during the shutdown, because it was not delivered yet. The next report must not.
const SHUTDOWN_AGAINST_RELEASE: Scenario = Scenario {
    name: "shutdown_against_release_and_join",
    run: || {
        let world = World::new();
        let guard = world.hold("k", LockOptions::new());
        let redlock = world.redlock.clone();
        let shutdown = thread::spawn(move || future::block_on(redlock.shutdown()));
        let release = thread::spawn(move || drop(guard));
        let visits = ["k", "other"].map(|key| world.visit(key, LockOptions::new()));
        let served = visits.map(|it| was_served(it.join().unwrap()));
        release.join().unwrap();
        let report = shutdown.join().unwrap();
        assert!(!report.timed_out, "it had no limit");
        sometimes("a lock was still held", report.held > 0);
        sometimes("a release came too late", report.abandoned > 0);
        sometimes(
            "nothing was left",
            (report.held, report.abandoned) == (0, 0),
        );
        sometimes("a waiter is served", served.contains(&true));
        sometimes("a waiter is shut down", served.contains(&false));
        let again = future::block_on(world.redlock.shutdown());
        let nothing = ShutdownReport {
            abandoned: 0,
            held: 0,
            timed_out: false,
        };
        assert_eq!(again, nothing, "all guards were dropped before");
        for node in &world.nodes {
            assert!(node.is_empty(), "a release was delivered");
        }
        assert!(!was_served(
            world.visit("k", LockOptions::new()).join().unwrap()
        ));
        world.end();
    },
    sometimes: &[
        "a lock was still held",
        "a release came too late",
        "nothing was left",
        "a waiter is served",
        "a waiter is shut down",
    ],
};

/// The timers end while leases set and clear deadlines. No waiter may wait for them, and no holder may stay.
const TIMERS_END: Scenario = Scenario {
    name: "end_of_the_timers_against_reschedule",
    run: || {
        let world = World::new();
        let guard = world.hold("k", LockOptions::new());
        let waits = ["k", "k", "other"].map(|key| {
            let lock = world.redlock.lock(key);
            thread::spawn(move || future::block_on(lock.into_future()).map(drop))
        });
        world.timers.abort();
        assert_eq!(future::block_on(guard.lost()), LossReason::Abandoned);
        for wait in waits {
            match wait.join().unwrap() {
                Ok(()) => sometimes("served", true),
                Err(LockError::ShutDown) => sometimes("shut down", true),
                Err(other) => panic!("{other}"),
            }
        }
        drop(guard);
        world.end_with_the_runtime();
    },
    sometimes: &["served", "shut down"],
};

/// The timers end at the moment at which a lock is granted. The nodes are not to blame.
const TIMERS_END_AT_GRANT: Scenario = Scenario {
    name: "end_of_the_timers_against_a_grant",
    run: || {
        let world = World::new();
        let lock = world.redlock.lock("k");
        let visit = thread::spawn(move || future::block_on(lock.into_future()).map(drop));
        world.timers.abort();
        match visit.join().unwrap() {
            Ok(()) => sometimes("served", true),
            Err(LockError::ShutDown) => sometimes("shut down", true),
            Err(other) => panic!("{other}"),
        }
        world.end_with_the_runtime();
    },
    sometimes: &["served", "shut down"],
};

/// All tasks of the runtime end, one after the other, while locks are wanted. The nodes are not to blame.
const RUNTIME_ENDS: Scenario = Scenario {
    name: "end_of_the_runtime_against_locks",
    run: || {
        let world = World::new();
        let guard = world.hold("k", LockOptions::new());
        let waits = ["k", "other"].map(|key| {
            let lock = world.redlock.lock(key);
            thread::spawn(move || future::block_on(lock.into_future()).map(drop))
        });
        let tasks = world.lanes.iter().chain([&world.timers]);
        let ends: Vec<_> = tasks
            .map(|task| {
                let task = task.abort_handle();
                thread::spawn(move || task.abort())
            })
            .collect();
        let hold = guard.hold().clone();
        let release = thread::spawn(move || drop(guard));
        for wait in waits {
            match wait.join().unwrap() {
                Ok(()) => sometimes("served", true),
                Err(LockError::ShutDown) => sometimes("shut down", true),
                Err(other) => panic!("{other}"),
            }
        }
        for end in ends {
            end.join().unwrap();
        }
        release.join().unwrap();
        assert!(!hold.is_valid());
        world.end_with_the_runtime();
    },
    sometimes: &["served", "shut down"],
};

fn was_served(visit: Visit) -> bool {
    match visit {
        Ok(_) => true,
        Err(LockError::ShutDown) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn shutdown_against_join() {
    SHUTDOWN_AGAINST_JOIN.explore();
}

#[test]
fn shutdown_against_release_and_join() {
    SHUTDOWN_AGAINST_RELEASE.explore();
}

#[test]
fn end_of_the_timers_against_reschedule() {
    TIMERS_END.explore();
}

/// A schedule in which the timers end after a task has seen its lock, and before the task claims the lock.
const END_BEFORE_CLAIM: &str = "10005013176596117677:0x24.8x39.0.1x7.2x3.1x6.3x7.6.4x3.3x2.5x5.6x4.5x5.8x6.5.7x11.1x6.2x3.1x5.2.7x6.5x4.6x4.5x5.7x3.1x6.5x6.7x2.3x6.4x4.3x10.8x10.0x2.1.0x3.2.3.0x3.4.5.0x3.6.7x2.0x9";

#[test]
fn a_lock_that_the_end_of_the_timers_takes_before_its_claim_is_shut_down() {
    let moment = "the runtime ended before the claim";
    TIMERS_END_AT_GRANT.replay_up_to(moment, END_BEFORE_CLAIM);
}

#[test]
fn end_of_the_timers_against_a_grant() {
    TIMERS_END_AT_GRANT.explore();
}

#[test]
fn end_of_the_runtime_against_locks() {
    RUNTIME_ENDS.explore();
}
