//! Locks that are wanted by several threads, and answers that come late.

use std::time::Duration;

use shuttle::{future, thread};

use super::{
    explore::{Choice, Scenario, sometimes},
    world::{Handed, World},
};
use crate::{Acquisition, LockError, LockOptions};

const SEVERAL_VISITORS: Scenario = Scenario {
    name: "several_visitors_of_one_key",
    run: || {
        let world = World::new();
        let visits = [0; 3].map(|_| world.visit("k", LockOptions::new()));
        let handed = visits.map(|it| it.join().unwrap().expect("the lock is free in the end"));
        sometimes("handed over", handed.contains(&Handed::Over));
        sometimes("granted each time", handed == [Handed::ByNodes; 3]);
        world.end();
    },
    sometimes: &["handed over", "granted each time"],
};

const OVERLAPPING_KEYS: Scenario = Scenario {
    name: "visitors_of_overlapping_keys",
    run: || {
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
    },
    sometimes: &["others wait for a pair", "others wait for one key"],
};

/// Answers come late. No visitor may find the key of an earlier one on the nodes: the node gets the release first.
const LATE_REPLY: Scenario = Scenario {
    name: "release_against_a_late_reply",
    run: || {
        let world = World::new();
        let once = LockOptions::new().max_attempts(1);
        let visits = [0; 2].map(|_| world.visit("k", once));
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
    },
    sometimes: &["in time", "too late"],
};

/// Two nodes break their connections, and are back later. No request may be forgotten, and no visitor may find the key of
/// an earlier one on the nodes.
const BROKEN_CONNECTIONS: Scenario = Scenario {
    name: "release_against_broken_connections",
    run: || {
        let world = World::new();
        let once = LockOptions::new().max_attempts(1);
        let visits = [0; 2].map(|_| world.visit("k", once));
        let nodes = world.nodes[..2].to_vec();
        let breaks = thread::spawn(move || {
            for node in &nodes {
                node.set_down(true);
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
    },
    sometimes: &["locked", "no quorum"],
};

/// Two clients of the same nodes. The nodes report when the key is free.
const TWO_CLIENTS: Scenario = Scenario {
    name: "two_clients_of_one_key",
    run: || {
        let holder = World::new();
        let waiter = World::beside(&holder);
        let guard = holder.hold("k", LockOptions::new());
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
    },
    sometimes: &["free at once", "taken at first"],
};

/// The control of the referee: two clients that do not share their nodes.
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
fn several_visitors_of_one_key() {
    SEVERAL_VISITORS.explore();
}

#[test]
fn visitors_of_overlapping_keys() {
    OVERLAPPING_KEYS.explore();
}

#[test]
fn release_against_a_late_reply() {
    LATE_REPLY.explore();
}

#[test]
fn release_against_broken_connections() {
    BROKEN_CONNECTIONS.explore();
}

#[test]
fn two_clients_of_one_key() {
    TWO_CLIENTS.explore();
}
