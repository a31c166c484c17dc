//! The fault matrix, row 45: failovers and resharding of a cluster whose slots vote, under contending clients.
//!
//! Each test prints how long the locks took before, during and after its fault (`--nocapture`).

use std::time::{Duration, Instant};

use redlock_kit::Cluster;
use redlock_tokio::{Durability, LockOptions, Redlock, RedlockBuilder};
use tokio::task::block_in_place;

use super::ready;
use crate::support::{
    MS,
    load::Load,
    shards::{cluster, slot, strict, url},
    states::votes,
};

const SECOND: Duration = Duration::from_secs(1);

/// How long something may take that must happen in the end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A voter whose server has changed has no vote for about as long as this and the window.
const TTL: Duration = Duration::from_secs(6);

fn builder(cluster: &Cluster) -> RedlockBuilder {
    strict(&url(cluster))
        .ttl(TTL)
        .confirmation_window(SECOND)
        .wait(PATIENCE)
}

/// Returns two clients that keep all rules, and vote.
async fn clients(cluster: &Cluster) -> [Redlock; 2] {
    [ready(builder(cluster)).await, ready(builder(cluster)).await]
}

/// Blocks until the voter votes, or does not vote, at a client.
fn wait_until(redlock: &Redlock, voter: usize, votes_then: bool) {
    let deadline = Instant::now() + PATIENCE;
    while votes(redlock, voter) != votes_then {
        let states = redlock.nodes();
        assert!(Instant::now() < deadline, "voter {voter}: {states:?}");
        std::thread::sleep(MS(20));
    }
}

/// Kills the master of the first shard under 64 tasks, and prints how long the locks took.
async fn a_shard_fails_over(full_coverage: bool) {
    let cluster = cluster().full_coverage(full_coverage).spawn().unwrap();
    let clients = clients(&cluster).await;
    let long = clients[0].lock("long").max_hold(PATIENCE).await.unwrap();
    let load = Load::start(&clients, 32);

    let before = load.during("before", || std::thread::sleep(2 * SECOND));
    let start = Instant::now();
    load.during("during", || {
        cluster.node(0).kill();
        cluster.wait_for_other_master(0).unwrap();
    });
    let settling = load.during("settling", || {
        wait_until(&clients[1], 0, false);
        wait_until(&clients[1], 0, true);
    });
    let outage = start.elapsed();
    let after = load.during("after", || std::thread::sleep(2 * SECOND));

    assert!(long.is_valid(), "a held lock needs two voters of three");
    drop(long);
    load.judge().await;
    assert!(before.locks() > 0 && after.locks() > 0);
    assert!(settling.locks() > 0, "the other voters are enough");
    assert!(outage > TTL + SECOND, "it has waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_a_shard_fails_over_under_64_tasks() {
    a_shard_fails_over(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_a_shard_fails_over_where_the_others_refuse_meanwhile() {
    a_shard_fails_over(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_slots_move_under_64_tasks_and_a_shard_fails_over_meanwhile() {
    // The slots of the voters are in shards 0, 2 and 3.
    let cluster = cluster().shards(4).full_coverage(false).spawn().unwrap();
    let clients = clients(&cluster).await;
    let load = Load::start(&clients, 32);
    let moved = slot(0) - 2..=slot(0) + 2;

    let before = load.during("before", || std::thread::sleep(SECOND));
    let long = clients[0].lock("long").max_hold(PATIENCE).await.unwrap();
    let moving = load.during("moving", || {
        cluster.move_slots(moved.clone(), 1).unwrap();
        wait_until(&clients[1], 0, false);
        wait_until(&clients[1], 0, true);
    });
    assert!(long.is_valid(), "a held lock needs two voters of three");
    drop(long);
    // A server that gets slots begins another tenure of all its slots.
    let joining = load.during("joining", || {
        cluster.move_slots(moved.clone(), 2).unwrap();
        wait_until(&clients[1], 1, false);
        wait_until(&clients[1], 1, true);
        wait_until(&clients[1], 0, true);
    });

    let failing = load.during("failing", || {
        let moves = cluster.start_move(moved.clone(), 0).unwrap();
        for slots in &moves {
            slots.move_keys(1).unwrap();
        }
        cluster.node(2).kill();
        let promoted = cluster.wait_for_other_master(2).unwrap();
        assert_eq!(cluster.shard_of(promoted), 2);
        for slots in moves {
            slots.finish().unwrap();
        }
        for voter in 0..3 {
            wait_until(&clients[1], voter, true);
        }
    });
    assert_eq!(cluster.owner_of(slot(0)), Some(0));
    let after = load.during("after", || std::thread::sleep(SECOND));
    load.judge().await;
    for phase in [&before, &moving, &joining, &failing, &after] {
        assert!(phase.locks() > 0, "{phase}");
    }
}

/// A cluster with one voter, and a lock that only the old master of the voter's slot has.
struct Forgotten {
    cluster: Cluster,
    guard: redlock_tokio::LockGuard,
    _holder: Redlock,
}

impl Forgotten {
    const TTL: Duration = Duration::from_secs(9);

    fn builder(cluster: &Cluster) -> RedlockBuilder {
        let options = LockOptions::new().no_renewal();
        strict(&(url(cluster) + "?voters=1"))
            .ttl(Self::TTL)
            .confirmation_window(SECOND)
            .options(options)
    }

    async fn new() -> Self {
        let cluster = cluster().spawn().unwrap();
        // The holder may trust the servers, which have never held a lock.
        let holder = Self::builder(&cluster).durability(Durability::AssumedForTests);
        let holder = ready(holder).await;
        // The slot of the only voter is in the middle.
        cluster.cut_off(&[1]);
        let guard = holder.lock("k").await.unwrap();
        let promoted = block_in_place(|| cluster.force_fail_over(1)).unwrap();
        assert_eq!(cluster.owner_of(slot(1)), Some(promoted));
        Self {
            cluster,
            guard,
            _holder: holder,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_the_owner_that_lacks_a_lock_waits_until_the_lock_is_over() {
    let scene = Forgotten::new().await;
    let other = Forgotten::builder(&scene.cluster).build().await.unwrap();
    let outcome = other.try_lock("k").await;
    assert!(scene.guard.is_valid(), "there is a lock to protect");
    assert!(outcome.is_err(), "two clients hold the lock");
    let second = other.lock("k").wait(PATIENCE).await.expect("in the end");
    assert!(!scene.guard.is_valid(), "only after the first");
    drop(second);
}

/// The rule taken out: an owner votes as soon as it is confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_without_the_wait_two_clients_hold_one_lock() {
    let scene = Forgotten::new().await;
    let gullible = Forgotten::builder(&scene.cluster).durability(Durability::AssumedForTests);
    let gullible = ready(gullible).await;
    let second = gullible.try_lock("k").await.unwrap();
    assert!(scene.guard.is_valid() && second.is_valid(), "two holders");
}
