//! The end of a process: an orderly shutdown, and a runtime that is dropped.

use std::sync::Arc;

use shuttle::{future, thread};

use super::{
    explore::{explore, sometimes},
    world::{TTL, Visit, World},
};
use crate::{LockError, LossReason};

/// The whole shutdown, while waiters come and the holder releases its lock. The report may count a release that was
/// made during the shutdown, because it was not delivered yet. The next report must not.
#[test]
fn shutdown_against_release_and_join() {
    explore(&["still held", "too late", "served", "shut down"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let redlock = world.redlock.clone();
        let shutdown = thread::spawn(move || future::block_on(redlock.shutdown(None)));
        let release = thread::spawn(move || drop(guard));
        let visits = ["k", "other"].map(|key| world.visit(world.lock(key)));
        note_ends(visits);
        release.join().unwrap();
        let report = shutdown.join().unwrap();
        assert!(!report.timed_out, "it had no limit");
        sometimes("still held", report.held > 0);
        sometimes("too late", report.abandoned > 0);
        let again = future::block_on(world.redlock.shutdown(None));
        assert_eq!((again.held, again.abandoned), (0, 0), "all were dropped");
        let late = world.visit(world.lock("k")).join().unwrap();
        assert!(matches!(late, Err(LockError::ShutDown)));
        world.end();
    });
}

/// All handles go while a lock is kept. The client lives until the lock is released, and no longer.
#[test]
fn end_of_the_handles_against_a_kept_lock() {
    explore(&["kept by the engine"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let client = Arc::downgrade(world.redlock.client());
        let keeps = thread::spawn(move || {
            let kept = future::block_on(guard.release_after(TTL / 2)).is_ok();
            sometimes("kept by the engine", kept && client.strong_count() == 1);
        });
        let stop = world.repeat(|events| events.advance(TTL / 20));
        world.end_by_itself();
        stop();
        keeps.join().unwrap();
    });
}

/// All tasks of the runtime end, one after the other, while locks are wanted. The nodes are not to blame.
#[test]
fn end_of_the_runtime_against_locks() {
    explore(&["served", "shut down"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let waits = ["k", "other"].map(|key| world.visit(world.lock(key)));
        let mut ends = Vec::new();
        let tasks = world.lanes.iter().chain([&world.timers]);
        for task in tasks.map(future::JoinHandle::abort_handle) {
            ends.push(thread::spawn(move || task.abort()));
        }
        let hold = guard.hold().view();
        ends.push(thread::spawn(move || drop(guard)));
        note_ends(waits);
        ends.into_iter().for_each(|it| it.join().unwrap());
        assert!(!hold.is_valid());
        world.end_with_the_runtime();
    });
}

fn note_ends(visits: [Visit; 2]) {
    for visit in visits {
        match visit.join().unwrap() {
            Ok(_) => sometimes("served", true),
            Err(LockError::ShutDown) => sometimes("shut down", true),
            Err(other) => panic!("{other}"),
        }
    }
}

/// The timers end while locks are granted and deadlines are set. No waiter may wait for them, and no holder may stay. The nodes
/// are not to blame.
#[test]
fn end_of_the_timers_against_a_grant() {
    explore(&["served", "shut down"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let visits = ["k", "other"].map(|key| world.visit(world.lock(key)));
        world.timers.abort();
        assert_eq!(future::block_on(guard.lost()), LossReason::Abandoned);
        note_ends(visits);
        drop(guard);
        world.end_with_the_runtime();
    });
}
