//! Locks that are wanted by several threads, and answers that come late.

use std::time::Duration;

use shuttle::{future, thread};

use super::{
    explore::{Choice, Scenario, explore, sometimes},
    world::{Handed, World},
};
use crate::{Acquisition, LockError, LockOptions};

#[test]
fn several_visitors_of_one_key() {
    let reached = &["handed over", "granted each time"];
    explore("several_visitors_of_one_key", reached, || {
        let world = World::new();
        let visits = [0; 3].map(|_| world.visit(world.lock("k")));
        let handed = visits.map(|it| it.join().unwrap().expect("the lock is free in the end"));
        sometimes("handed over", handed.contains(&Handed::Over));
        sometimes("granted each time", handed == [Handed::ByNodes; 3]);
        world.end();
    });
}

#[test]
fn visitors_of_overlapping_keys() {
    let reached = &["others wait for a pair", "others wait for one key"];
    explore("visitors_of_overlapping_keys", reached, || {
        let world = World::new();
        let visits = [&["a", "b"][..], &["b", "c"], &["b"], &["c"]].map(|keys| {
            let (redlock, referee) = (world.redlock.clone(), world.referee.clone());
            thread::spawn(move || {
                let outcome = future::block_on(redlock.lock_all(keys).into_future());
                let others_wait = redlock.queue().waiting > 0;
                sometimes("others wait for a pair", others_wait && keys.len() == 2);
                sometimes("others wait for one key", others_wait && keys.len() == 1);
                referee.visit(outcome)
            })
        });
        for visit in visits {
            visit.join().unwrap().expect("the keys are free in the end");
        }
        world.end();
    });
}

/// Answers come late. No visitor may find the key of an earlier one on the nodes: the node gets the release first.
#[test]
fn release_against_a_late_reply() {
    let reached = &["in time", "too late"];
    explore("release_against_a_late_reply", reached, || {
        let world = World::new();
        let once = LockOptions::new().max_attempts(1);
        let visits = [0; 2].map(|_| world.visit(world.lock("k").options(once)));
        let late = world.on_thread(|events| {
            events.time_out(0);
            events.time_out(1);
        });
        for visit in visits {
            match visit.join().unwrap() {
                Ok(_) => sometimes("in time", true),
                Err(LockError::NoQuorum(_)) => sometimes("too late", true),
                Err(other) => panic!("{other}"),
            }
        }
        late.join().unwrap();
        world.end();
    });
}

/// Two nodes break their connections, and are back later. No request may be forgotten, and no visitor may find the key of
/// an earlier one on the nodes.
#[test]
fn release_against_broken_connections() {
    let reached = &["locked", "no quorum"];
    explore("release_against_broken_connections", reached, || {
        let world = World::new();
        let once = LockOptions::new().max_attempts(1);
        let visits = [0; 2].map(|_| world.visit(world.lock("k").options(once)));
        let nodes = world.nodes[..2].to_vec();
        let breaks = thread::spawn(move || {
            for node in &nodes {
                node.set_down(true);
            }
            // So that some visits meet both while they are down.
            for _ in 0..8 {
                thread::yield_now();
            }
            for node in &nodes {
                node.set_down(false);
            }
        });
        for visit in visits {
            match visit.join().unwrap() {
                Ok(_) => sometimes("locked", true),
                Err(LockError::NoQuorum(_)) => sometimes("no quorum", true),
                Err(other) => panic!("{other}"),
            }
        }
        breaks.join().unwrap();
        // A node is owed a release until the key must have expired, if a request to set the key was not answered.
        world.end_after_expiry();
    });
}

/// Two clients of the same nodes. The nodes report when the key is free.
#[test]
fn two_clients_of_one_key() {
    let reached = &["free at once", "taken at first"];
    explore("two_clients_of_one_key", reached, || {
        let holder = World::new();
        let waiter = World::beside(&holder);
        let guard = holder.hold(holder.lock("k"));
        let lock = waiter.redlock.lock("k").wait(Duration::from_secs(3600));
        let referee = waiter.referee.clone();
        let visit = thread::spawn(move || {
            let outcome = future::block_on(lock.into_future());
            if let Ok(guard) = &outcome
                && let Acquisition::Granted { attempts, .. } = guard.acquisition()
            {
                sometimes("free at once", attempts == 1);
                sometimes("taken at first", attempts > 1);
            }
            referee.visit(outcome)
        });
        let release = thread::spawn(move || future::block_on(guard.release()));
        let time = waiter.run_time();
        visit
            .join()
            .unwrap()
            .expect("the other client has released the key");
        release.join().unwrap();
        time.stop();
        holder.drain();
        waiter.end();
        holder.end();
    });
}

/// The control of the referee: two clients that do not share their nodes.
const TWO_HOLDERS: Scenario = Scenario {
    name: "two_holders_of_one_key",
    run: || {
        let (one, other) = (World::new(), World::new());
        let guards = [&one, &other].map(|world| world.hold(world.lock("k")));
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
