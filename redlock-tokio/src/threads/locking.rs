//! Locks that are wanted, released and lost, while others wait for just that.

use shuttle::thread;

use super::{
    explore::{explore, sometimes},
    world::{TTL, World},
};
use crate::{Acquisition, LockError, LockOptions};

/// The holder drops its guard, the first waiter gives up, and the second waiter must get the lock.
#[test]
fn cancel_against_handover() {
    explore(&["handed over", "granted"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let first = world.wait(world.lock("k"));
        let second = world.visit(world.lock("k"));
        let cancel = thread::spawn(move || drop(first));
        drop(guard);
        let acquisition = second.join().unwrap().expect("the others are gone");
        let is_granted = matches!(acquisition, Acquisition::Granted { .. });
        sometimes("granted", is_granted);
        sometimes("handed over", !is_granted);
        cancel.join().unwrap();
        world.end();
    });
}

/// A waiter gets the lock when its holder has lost it.
#[test]
fn loss_against_release() {
    explore(&["expired first", "released first"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let hold = guard.hold().view();
        let events = world.events.clone();
        let expiry = thread::spawn(move || events.advance(TTL));
        let release = thread::spawn(move || {
            let is_valid = guard.is_valid();
            sometimes("released first", is_valid);
            sometimes("expired first", !is_valid);
            drop(guard);
        });
        expiry.join().unwrap();
        release.join().unwrap();
        assert!(!hold.is_valid());
        drop(hold);
        // The streak of this process is over, so it may pause first. In larger steps, requests would wait for too long.
        let stop = world.repeat(|events| events.advance(TTL / 10_000));
        let next = world.visit(world.lock("k")).join().unwrap();
        next.expect("the lock is free");
        stop();
        world.end();
    });
}

/// Two nodes answer late, then break their connections, and are back later. No request may be forgotten, and no visitor may
/// find the key of an earlier one on the nodes: they get the release first.
#[test]
fn release_against_lost_replies() {
    explore(&["locked", "no quorum"], || {
        let world = World::new();
        let once = LockOptions::new().max_attempts(1);
        let visits = [0; 2].map(|_| world.visit(world.lock("k").options(once)));
        let nodes = world.nodes[..2].to_vec();
        let events = world.events.clone();
        let losses = thread::spawn(move || {
            events.time_out(0);
            events.time_out(1);
            nodes.iter().for_each(|node| node.set_down(true));
            // So that some visits meet both while they are down.
            (0..8).for_each(|_| thread::yield_now());
            nodes.iter().for_each(|node| node.set_down(false));
        });
        for visit in visits {
            match visit.join().unwrap() {
                Ok(_) => sometimes("locked", true),
                Err(LockError::NoQuorum(_)) => sometimes("no quorum", true),
                Err(other) => panic!("{other}"),
            }
        }
        losses.join().unwrap();
        // A node is owed a release until the key must have expired, if a request to set the key was not answered.
        let stop = world.repeat(|events| {
            events.advance(TTL / 2);
            events.retry();
        });
        world.end();
        stop();
    });
}
