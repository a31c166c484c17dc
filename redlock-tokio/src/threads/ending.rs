//! The end of a process: an orderly shutdown, and a runtime that is dropped.

use shuttle::{future, thread};

use super::{
    explore::{Scenario, explore, sometimes},
    world::{Visit, World},
};
use crate::{LockError, LossReason, ShutdownReport};

const SHUTDOWN_AGAINST_JOIN: Scenario = Scenario {
    name: "shutdown_against_join",
    run: || {
        let world = World::new();
        let visits = [0; 3].map(|_| world.visit(world.lock("k")));
        let redlock = world.redlock.clone();
        let shutdown = thread::spawn(move || redlock.refuse_locks());
        let served = visits.map(|it| was_served(it.join().unwrap()));
        sometimes(
            "some are served",
            served.contains(&true) && served.contains(&false),
        );
        sometimes("none is served", !served.contains(&true));
        shutdown.join().unwrap();
        assert!(!was_served(world.visit(world.lock("k")).join().unwrap()));
        world.end();
    },
    sometimes: &["some are served", "none is served"],
};

#[test]
fn shutdown_against_join() {
    SHUTDOWN_AGAINST_JOIN.explore();
}

/// The whole shutdown, while waiters come and the holder releases its lock. The report may count a release that was
/// made during the shutdown, because it was not delivered yet. The next report must not.
#[test]
fn shutdown_against_release_and_join() {
    let reached = &[
        "a lock was still held",
        "a release came too late",
        "nothing was left",
        "a waiter is served",
        "a waiter is shut down",
    ];
    explore("shutdown_against_release_and_join", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let redlock = world.redlock.clone();
        let shutdown = thread::spawn(move || future::block_on(redlock.shutdown(None)));
        let release = thread::spawn(move || drop(guard));
        let visits = ["k", "other"].map(|key| world.visit(world.lock(key)));
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
        let again = future::block_on(world.redlock.shutdown(None));
        let nothing = ShutdownReport {
            abandoned: 0,
            held: 0,
            timed_out: false,
        };
        assert_eq!(again, nothing, "all guards were dropped before");
        for node in &world.nodes {
            assert!(node.is_empty(), "a release was delivered");
        }
        assert!(!was_served(world.visit(world.lock("k")).join().unwrap()));
        world.end();
    });
}

/// The timers end while leases set and clear deadlines. No waiter may wait for them, and no holder may stay.
#[test]
fn end_of_the_timers_against_reschedule() {
    let reached = &["served", "shut down"];
    explore("end_of_the_timers_against_reschedule", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let waits = ["k", "k", "other"].map(|key| lock(&world, key));
        world.timers.abort();
        assert_eq!(future::block_on(guard.lost()), LossReason::Abandoned);
        for wait in waits {
            note_end(wait.join().unwrap());
        }
        drop(guard);
        world.end_with_the_runtime();
    });
}

/// The timers end at the moment at which a lock is granted. The nodes are not to blame.
const TIMERS_END_AT_GRANT: Scenario = Scenario {
    name: "end_of_the_timers_against_a_grant",
    run: || {
        let world = World::new();
        let visit = lock(&world, "k");
        world.timers.abort();
        note_end(visit.join().unwrap());
        world.end_with_the_runtime();
    },
    sometimes: &["served", "shut down"],
};

/// All tasks of the runtime end, one after the other, while locks are wanted. The nodes are not to blame.
#[test]
fn end_of_the_runtime_against_locks() {
    let reached = &["served", "shut down"];
    explore("end_of_the_runtime_against_locks", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let waits = ["k", "other"].map(|key| lock(&world, key));
        let tasks = world.lanes.iter().chain([&world.timers]);
        let ends: Vec<_> = tasks
            .map(|task| {
                let task = task.abort_handle();
                thread::spawn(move || task.abort())
            })
            .collect();
        let hold = guard.hold().view();
        let release = thread::spawn(move || drop(guard));
        for wait in waits {
            note_end(wait.join().unwrap());
        }
        for end in ends {
            end.join().unwrap();
        }
        release.join().unwrap();
        assert!(!hold.is_valid());
        world.end_with_the_runtime();
    });
}

/// Locks a key on a thread of its own, and drops the guard.
fn lock(world: &World, key: &str) -> thread::JoinHandle<Result<(), LockError>> {
    let lock = world.redlock.lock(key);
    thread::spawn(move || future::block_on(lock.into_future()).map(drop))
}

fn note_end(outcome: Result<(), LockError>) {
    match outcome {
        Ok(()) => sometimes("served", true),
        Err(LockError::ShutDown) => sometimes("shut down", true),
        Err(other) => panic!("{other}"),
    }
}

fn was_served(visit: Visit) -> bool {
    match visit {
        Ok(_) => true,
        Err(LockError::ShutDown) => false,
        Err(other) => panic!("{other}"),
    }
}

/// A schedule in which the timers end after a task has seen its lock, and before the task claims the lock.
const END_BEFORE_CLAIM: &str = "9104ed01c1a6c3bda8f8d6d23800000000100210000000c0188000000000a50003ce3907208410420821841042082184104208851042084288108240688c310821648c815029a594628c29a51884d039e71c144208a59432c6180821841042088173ce39e79c734e08218470ce39e79c73ce3947081142082184108228a59452c618831042c618638c31c630c6188410420821008200601000403100000000000000";

#[test]
fn a_lock_that_the_end_of_the_timers_takes_before_its_claim_is_shut_down() {
    let moment = "the runtime ended before the claim";
    TIMERS_END_AT_GRANT.replay_up_to(moment, END_BEFORE_CLAIM);
}

#[test]
fn end_of_the_timers_against_a_grant() {
    TIMERS_END_AT_GRANT.explore();
}
