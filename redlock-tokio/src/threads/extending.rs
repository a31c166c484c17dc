//! Extensions, while votes are withdrawn.

use shuttle::{future, thread};

use super::{
    explore::{First, explore, sometimes},
    world::{TTL, World},
};
use crate::{ExtendError, LossReason};

/// Two of three votes are withdrawn, so the lock is lost, and every task that works under it learns of that.
#[test]
fn extension_against_withdrawal() {
    let reached = &["extended", "lost"];
    explore("extension_against_withdrawal", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let hold = guard.hold().view();
        let extension = thread::spawn(move || match future::block_on(hold.extend()) {
            Ok(()) => sometimes("extended", true),
            Err(ExtendError::Lost(LossReason::VotesWithdrawn)) => sometimes("lost", true),
            Err(other) => panic!("{other}"),
        });
        let withdrawal = world.on_thread(|events| {
            events.withdraw(0);
            events.withdraw(1);
        });
        assert_eq!(future::block_on(guard.lost()), LossReason::VotesWithdrawn);
        assert!(!guard.is_valid());
        extension.join().unwrap();
        withdrawal.join().unwrap();
        drop(guard);
        world.end();
    });
}

/// The timers renew the lock at the moment at which its votes are withdrawn.
#[test]
fn renewal_against_withdrawal() {
    let reached = &["the renewal is due first", "the votes are withdrawn first"];
    explore("renewal_against_withdrawal", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let first = First::default();
        let noted = first.clone();
        let time = world.on_thread(move |events| {
            events.advance(TTL / 3);
            noted.note("the renewal is due first");
        });
        let withdrawal = world.on_thread(move |events| {
            events.withdraw(0);
            events.withdraw(1);
            first.note("the votes are withdrawn first");
        });
        assert_eq!(future::block_on(guard.lost()), LossReason::VotesWithdrawn);
        time.join().unwrap();
        withdrawal.join().unwrap();
        drop(guard);
        world.end();
    });
}

/// A waiter gets the lock when its holder has lost it.
#[test]
fn loss_against_release() {
    let reached = &["the lock expires first", "the lock is released first"];
    explore("loss_against_release", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let hold = guard.hold().view();
        let first = First::default();
        let noted = first.clone();
        let expiry = world.on_thread(move |events| {
            events.advance(TTL);
            noted.note("the lock expires first");
        });
        let release = thread::spawn(move || {
            drop(guard);
            first.note("the lock is released first");
        });
        expiry.join().unwrap();
        release.join().unwrap();
        assert!(!hold.is_valid());
        drop(hold);
        // The streak of this process is over, so it may pause first.
        let time = world.run_time();
        let next = world.visit(world.lock("k")).join().unwrap();
        next.expect("the lock is free");
        time.stop();
        world.end();
    });
}
