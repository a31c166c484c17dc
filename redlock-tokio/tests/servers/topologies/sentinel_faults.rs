//! The fault matrix, rows 43 and 44: failovers of a group that sentinels watch, under contending clients.
//!
//! Each test prints how long the locks took during its faults (`--nocapture`).

use std::{
    thread,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redlock_kit::{Sentinels, SentinelsBuilder};
use redlock_tokio::{
    Acquisition, Durability, LockOptions, Redlock, RedlockBuilder, node::RedisNode,
};
use tokio::{
    task::{block_in_place, spawn_blocking},
    time::sleep,
};

use super::ready;
use crate::support::{MS, gullible::gullible, load::Load, states::votes};

const TTL: Duration = Duration::from_millis(900);
const WINDOW: Duration = Duration::from_millis(300);

/// How long a sentinel takes to find a server down.
const DOWN_AFTER: Duration = Duration::from_millis(700);

/// How long something may take that must happen in the end, on a busy machine. There, sentinels that were held up start no
/// failover for half a minute, and maybe once more.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_43_a_host_crashes_and_comes_back_and_fails_back() {
    let scene = Scene::<3>::new().await;
    scene.locks_after("host crash", |group| {
        group.server(0).kill();
        group.wait_for_other_master(0).unwrap();
    });
    scene.locks_after("restart", |group| {
        group.server(0).restart().unwrap();
        group.settle().unwrap();
    });
    // It ends when another server is the master. On a busy machine the sentinels may have chosen one more since the crash.
    scene.locks_after("failback", |group| _ = group.fail_over().unwrap());
    scene.load.judge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_43_a_partition_with_clients_on_both_sides() {
    let scene = Scene::<3>::new().await;
    // The old master accepts writes from all clients, and one sentinel still names it.
    scene.locks_after("partition", |group| {
        group.cut_off(&[0], &[0]);
        group.wait_for_other_master(0).unwrap();
    });
    scene.locks_after("healing", |group| {
        group.heal();
        group.settle().unwrap();
    });
    scene.load.judge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_43_a_master_that_pauses_and_continues() {
    let scene = Scene::<3>::new().await;
    // It takes itself for the master, until a sentinel demotes it.
    scene.locks_after("pause", |group| {
        group.server(0).freeze();
        group.wait_for_other_master(0).unwrap();
        group.server(0).thaw();
    });
    scene.locks_after("demotion", |group| _ = group.settle().unwrap());
    scene.load.judge().await;
}

/// The rule taken out: each client believes one sentinel alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_43_clients_that_believe_one_sentinel_are_two_holders() {
    let group = group();
    let node = RedisNode::from_url(&group.url()).unwrap();
    let builders = [0, 1].map(|sentinel| {
        let address = &group.addresses()[sentinel];
        let node = gullible(&node, Sentinels::NAME, address);
        Redlock::builder().custom_nodes([node])
    });
    let scene = Scene::start(group, builders).await;
    scene.group.cut_off(&[0], &[0]);
    let deadline = Instant::now() + PATIENCE;
    while !scene.load.has_two_holders() {
        assert!(Instant::now() < deadline, "the fault shows nothing");
        sleep(MS(20)).await;
    }
}

/// The rule taken out: a new master votes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_43_clients_that_do_not_wait_after_a_failover_are_two_holders() {
    let group = group();
    // A lock that outlives the failover, and a master that cannot pass it on.
    let hasty = || {
        let builder = contending(over(&group)).ttl(2 * PATIENCE);
        ready(builder.durability(Durability::AssumedForTests))
    };
    let (first, second) = (hasty().await, hasty().await);
    group.cut_off(&[0], &[0]);
    let options = LockOptions::new().no_renewal();
    let guard = first.lock("k").options(options).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let granted = loop {
        match second.try_lock("k").await {
            Ok(granted) => break granted,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        sleep(MS(20)).await;
    };
    assert!(guard.is_valid() && granted.is_valid(), "two holders");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_43_nobody_notices_that_one_of_three_groups_fails_over() {
    let groups = [(); 3].map(|()| spawn_blocking(|| shape().replicas(1).spawn().unwrap()));
    let groups: Vec<_> = join_all(groups).await;
    let groups: Vec<Sentinels> = groups.into_iter().map(Result::unwrap).collect();
    // So long that a busy machine asks and renews in time.
    let builder = || {
        let builder = contending(Redlock::builder().nodes(groups.iter().map(Sentinels::url)));
        let builder = builder.ttl(MS(4000)).confirmation_window(MS(1000));
        builder.wait(PATIENCE)
    };
    let clients = [ready(builder()).await, ready(builder()).await];
    let load = Load::start(&clients, 3);
    let first = &clients[0].nodes()[0].address;
    let is_granted_by_first = async || {
        let guard = clients[0].lock("own").await.unwrap();
        match guard.acquisition() {
            Acquisition::Granted { granted_by, .. } => granted_by.contains(first),
            acquisition => panic!("{acquisition:?}"),
        }
    };
    let grants_again = async || {
        let deadline = Instant::now() + PATIENCE;
        while !is_granted_by_first().await {
            assert!(Instant::now() < deadline, "{:?}", clients[0].nodes());
        }
    };
    grants_again().await;
    groups[0].server(0).kill();
    assert!(!is_granted_by_first().await);
    let without = load.during("without", || {
        assert_eq!(groups[0].wait_for_other_master(0).unwrap(), 1);
    });
    assert!(without.locks() > 0, "{without}");
    let deadline = Instant::now() + 2 * PATIENCE;
    while !clients.iter().all(|it| votes(it, 0)) {
        assert!(Instant::now() < deadline, "{:?}", clients[0].nodes());
        sleep(MS(20)).await;
    }
    grants_again().await;
    assert_eq!(load.refused(), 0, "two of three groups are a majority");
    load.judge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_44_without_a_majority_of_sentinels_there_is_no_vote() {
    let scene = Scene::<2>::new().await;
    // One sentinel after the other restarts, and the two others go on.
    for number in 0..3 {
        scene.locks_after("restart", |group| group.sentinel(number).restart().unwrap());
    }
    scene.locks_after("one down", |group| group.sentinel(0).kill());
    scene.group.sentinel(1).freeze();
    sleep(WINDOW + TTL).await;
    let silent = scene.load.holds();
    let error = scene.clients[0].try_lock("other").await.unwrap_err();
    assert!(error.to_string().contains("not confirmed"), "{error}");
    sleep(2 * TTL).await;
    assert_eq!(scene.load.holds(), silent, "no vote without a majority");
    scene.locks_after("back", |group| group.sentinel(1).thaw());
    scene.load.judge().await;
}

/// A group, and clients that contend for one key.
struct Scene<const N: usize> {
    group: Sentinels,
    clients: [Redlock; N],
    load: Load,
}

impl<const N: usize> Scene<N> {
    async fn new() -> Self {
        let group = group();
        let builders = [(); N].map(|()| over(&group));
        Self::start(group, builders).await
    }

    async fn start(group: Sentinels, builders: [RedlockBuilder; N]) -> Self {
        let clients = builders.map(|it| ready(contending(it)));
        let clients: [_; N] = join_all(clients).await.try_into().expect("as many");
        let load = Load::start(&clients, 1);
        let scene = Self {
            group,
            clients,
            load,
        };
        scene.locks_after("start", |_| {});
        scene
    }

    /// Carries out a fault, and waits until locks are granted after it.
    fn locks_after(&self, fault: &'static str, cause: impl FnOnce(&Sentinels)) {
        self.load.during(fault, || {
            cause(&self.group);
            let (enough, deadline) = (self.load.holds() + 5, Instant::now() + PATIENCE);
            while self.load.holds() < enough {
                let states: Vec<_> = self.clients.iter().map(Redlock::nodes).collect();
                assert!(Instant::now() < deadline, "no hold: {states:?}");
                thread::sleep(MS(10));
            }
        });
    }
}

fn shape() -> SentinelsBuilder {
    Sentinels::builder().down_after(DOWN_AFTER)
}

fn group() -> Sentinels {
    block_in_place(|| shape().spawn()).unwrap()
}

fn over(group: &Sentinels) -> RedlockBuilder {
    Redlock::builder().nodes(group.url())
}

/// Makes a client wait as long as in production, and try again soon.
fn contending(builder: RedlockBuilder) -> RedlockBuilder {
    builder
        .ttl(TTL)
        .wait(MS(200))
        .confirmation_window(WINDOW)
        .node_timeout(MS(500))
        .connect_timeout(MS(5000))
        .options(LockOptions::new().retry_delay(MS(5), MS(20)))
}
