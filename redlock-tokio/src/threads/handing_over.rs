//! A lock that goes from one holder of the process to the next, while waiters give up.

use std::time::Duration;

use shuttle::{future, thread};

use super::{
    explore::{First, explore, sometimes},
    world::{Handed, World, patient},
};
use crate::{ExtendError, LockOptions};

#[test]
fn cancel_against_handover() {
    let reached = &["handed over", "granted"];
    explore("cancel_against_handover", reached, || {
        cancel(LockOptions::new())
    });
}

#[test]
fn cancel_against_the_turn_that_is_given_on() {
    let reached = &["granted"];
    explore("cancel_against_the_turn_that_is_given_on", reached, || {
        cancel(LockOptions::new().handover(false))
    });
}

/// The holder drops its guard, the first waiter gives up, and the second waiter must get the lock.
fn cancel(options: LockOptions) {
    let world = World::new();
    let guard = world.hold(world.lock("k").options(options));
    let first = world.wait(world.lock("k").options(options));
    let second = world.visit(world.lock("k").options(options));
    let cancel = thread::spawn(move || drop(first));
    drop(guard);
    let handed = second.join().unwrap().expect("the others are gone");
    sometimes("handed over", handed == Handed::Over);
    sometimes("granted", handed == Handed::ByNodes);
    cancel.join().unwrap();
    world.end();
}

/// A waiter that is polled may get the lock, and a waiter that is dropped may have it already.
#[test]
fn cancel_of_two_waiters_against_handover() {
    let reached = &["cancelled with the lock", "cancelled without the lock"];
    explore("cancel_of_two_waiters_against_handover", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let waiters = [0; 2].map(|_| world.wait(world.lock("k")));
        let last = world.visit(world.lock("k"));
        let cancels = waiters.map(|mut waiter| {
            thread::spawn(move || {
                let polled = futures::FutureExt::now_or_never(&mut waiter);
                sometimes("cancelled with the lock", matches!(polled, Some(Ok(_))));
                sometimes("cancelled without the lock", polled.is_none());
            })
        });
        drop(guard);
        last.join().unwrap().expect("the others are gone");
        for thread in cancels {
            thread.join().unwrap();
        }
        world.end();
    });
}

/// The guard is dropped on one thread, and a clone of its hold is used on others.
#[test]
fn guard_dropped_against_clones_of_its_hold() {
    let reached = &["extended", "released"];
    explore("guard_dropped_against_clones_of_its_hold", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let next = world.visit(world.lock("k"));
        let holds = [0; 2].map(|_| guard.hold().view());
        let left = guard.hold().view();
        let extensions = holds.map(|hold| {
            thread::spawn(move || match future::block_on(hold.extend()) {
                Ok(()) => sometimes("extended", true),
                Err(ExtendError::Released) => sometimes("released", true),
                Err(other) => panic!("{other}"),
            })
        });
        drop(guard);
        assert!(!left.is_valid(), "its guard is gone");
        assert_eq!(left.remaining(), Duration::ZERO);
        drop(left);
        next.join().unwrap().expect("the lock is free in the end");
        for thread in extensions {
            thread.join().unwrap();
        }
        world.end();
    });
}

/// Keys are kept for a waiter for both. The slice of time ends while the waiter gives up.
#[test]
fn end_of_a_slice_against_leave() {
    let reached = &[
        "the slice is over first",
        "the waiter leaves first",
        "the holder leaves first",
    ];
    explore("end_of_a_slice_against_leave", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("a").options(patient()));
        let several = world.wait(world.redlock.lock_all(["a", "b"]).options(patient()));
        world.events.advance(Duration::from_millis(100)); // now they are kept
        let single = world.visit(world.lock("b").options(patient()));
        let first = First::default();
        let noted = first.clone();
        let expire = world.on_thread(move |events| {
            events.advance(Duration::from_millis(200));
            noted.note("the slice is over first");
        });
        let noted = first.clone();
        let cancel = thread::spawn(move || {
            drop(several);
            noted.note("the waiter leaves first");
        });
        drop(guard);
        first.note("the holder leaves first");
        single
            .join()
            .unwrap()
            .expect("the keys are free in the end");
        expire.join().unwrap();
        cancel.join().unwrap();
        world.end();
    });
}

/// The holder of one key wants the other before it releases its own. Only the end of the slice lets it go on.
#[test]
fn end_of_a_slice_against_a_holder_that_wants_the_key() {
    let reached = &["the key is kept", "the key is free"];
    explore(
        "end_of_a_slice_against_a_holder_that_wants_the_key",
        reached,
        || {
            let world = World::new();
            let guard = world.hold(world.lock("a").options(patient()));
            let several = world.visit(world.redlock.lock_all(["a", "b"]).options(patient()));
            let time = world.run_time();
            let mut single = world.redlock.lock("b").options(patient()).into_future();
            let early = futures::FutureExt::now_or_never(&mut single);
            let waiting = world.redlock.queue().waiting;
            sometimes("the key is kept", waiting == 2);
            sometimes("the key is free", waiting < 2);
            let outcome = early.unwrap_or_else(|| future::block_on(single));
            let other = world.referee.visit(outcome);
            other.expect("the slice ends");
            drop(guard);
            several
                .join()
                .unwrap()
                .expect("the keys are free in the end");
            time.stop();
            world.end();
        },
    );
}
