//! The fault matrix, rows 43 and 44: failovers of a group that sentinels watch, under contending clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redlock_kit::Sentinels;
use redlock_tokio::{
    Acquisition, Durability, LockOptions, NodeState, Redlock, RedlockBuilder,
    node::{Node, RedisNode},
};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::support::{MS, gullible::GullibleNode, history::History};

const TTL: Duration = Duration::from_millis(900);
const WINDOW: Duration = Duration::from_millis(300);

/// So long that a busy machine asks and renews in time.
const LONG_TTL: Duration = Duration::from_secs(4);
const LONG_WINDOW: Duration = Duration::from_secs(1);

/// How long a sentinel takes to find a server down.
const DOWN_AFTER: Duration = Duration::from_millis(700);

/// Longer than an answer takes on a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long something may take that must happen in the end, on a busy machine. There, sentinels that were held up start no
/// failover for half a minute, and maybe once more.
const PATIENCE: Duration = Duration::from_secs(120);

/// A group with two replicas and three sentinels, and clients that contend for one key.
struct Scene {
    group: Arc<Sentinels>,
    history: Arc<History>,
    is_over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
    clients: Vec<Redlock>,
}

impl Scene {
    async fn new() -> Self {
        let group = spawn_blocking(|| Sentinels::builder().down_after(DOWN_AFTER).spawn());
        Self {
            group: Arc::new(group.await.unwrap().unwrap()),
            history: Arc::default(),
            is_over: Arc::default(),
            workers: Vec::new(),
            clients: Vec::new(),
        }
    }

    fn node(&self) -> RedisNode {
        RedisNode::from_url(&self.group.url()).unwrap()
    }

    /// Returns a node whose client believes one sentinel alone.
    fn gullible(&self, sentinel: usize) -> GullibleNode {
        let address = &self.group.addresses()[sentinel];
        GullibleNode::new(&self.node(), self.group.name(), address)
    }

    /// Adds a client that locks the key again and again, as soon as it may vote.
    async fn add(&mut self, builder: RedlockBuilder) {
        let redlock = builder.build().await.unwrap();
        redlock.ready(PATIENCE).await.unwrap();
        self.clients.push(redlock.clone());
        let (history, is_over) = (Arc::clone(&self.history), Arc::clone(&self.is_over));
        self.workers.push(tokio::spawn(async move {
            while !is_over.load(SeqCst) {
                hold(&redlock, &history).await;
            }
        }));
    }

    /// Runs what blocks the thread.
    async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Sentinels) -> T + Send + 'static,
    ) -> T {
        let group = Arc::clone(&self.group);
        spawn_blocking(move || run(&group)).await.unwrap()
    }

    /// Waits until so many more holds have ended.
    async fn holds(&self, more: usize) {
        let (enough, deadline) = (self.history.len() + more, Instant::now() + PATIENCE);
        while self.history.len() < enough {
            let states: Vec<_> = self.clients.iter().map(Redlock::nodes).collect();
            assert!(Instant::now() < deadline, "no hold: {states:?}");
            tokio::time::sleep(MS(10)).await;
        }
    }

    /// Waits until another server than `old` is the master.
    async fn other_master(&self, old: usize) -> usize {
        self.blocking(move |group| group.wait_for_other_master(old).unwrap())
            .await
    }

    /// Ends the workers, and returns a key that two clients held at once.
    async fn end(self) -> Option<String> {
        self.is_over.store(true, SeqCst);
        for worker in self.workers {
            worker.await.unwrap();
        }
        self.history.overlap()
    }
}

fn builder(node: impl Node) -> RedlockBuilder {
    Redlock::builder()
        .custom_nodes([node])
        .ttl(TTL)
        .wait(MS(200))
        .confirmation_window(WINDOW)
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(Duration::from_secs(2))
        .options(LockOptions::new().retry_delay(MS(5), MS(20)))
}

/// Holds the lock for a moment if it can be had, and records for how long it was valid.
async fn hold(redlock: &Redlock, history: &History) {
    let Ok(guard) = redlock.lock("k").await else {
        return;
    };
    let from = Instant::now();
    let mut to = from;
    let end = from + MS(60);
    while to < end {
        tokio::time::sleep(MS(5)).await;
        // Read before the validity, so that the lock was valid then.
        let now = Instant::now();
        if !guard.is_valid() {
            break;
        }
        to = now;
    }
    history.add("k", from, to);
    guard.release().await;
}

/// Prints how long no client got the lock, against what the rule costs.
fn report(fault: &str, scene: &Scene, since: Instant) {
    let gap = scene.history.longest_gap("k", since);
    println!(
        "{fault}: no lock for {:.2} s; max_ttl + window = {:.2} s",
        gap.as_secs_f64(),
        (TTL + WINDOW).as_secs_f64()
    );
}

#[tokio::test]
async fn row_43_a_host_crashes_and_comes_back_and_fails_back() {
    let mut scene = Scene::new().await;
    for _ in 0..3 {
        scene.add(builder(scene.node())).await;
    }
    scene.holds(5).await;
    let crash = Instant::now();
    scene.group.server(0).kill();
    scene.other_master(0).await;
    let promoted = crash.elapsed();
    scene.holds(5).await;
    report("host crash", &scene, crash);
    println!("promoted after {:.2} s", promoted.as_secs_f64());

    scene.group.server(0).restart().unwrap();
    scene.blocking(|group| group.settle().unwrap()).await;
    scene.holds(5).await;
    // It ends when another server is the master. On a busy machine the sentinels may have chosen one more since the crash.
    let ordered = Instant::now();
    scene.blocking(|group| group.fail_over().unwrap()).await;
    scene.holds(5).await;
    report("failback", &scene, ordered);
    assert_eq!(scene.end().await, None, "two holders");
}

#[tokio::test]
async fn row_43_a_partition_with_clients_on_both_sides() {
    let mut scene = Scene::new().await;
    for _ in 0..3 {
        scene.add(builder(scene.node())).await;
    }
    scene.holds(5).await;
    let cut = Instant::now();
    // The old master accepts writes from all clients, and one sentinel still names it.
    scene.group.cut_off(&[0], &[0]);
    scene.other_master(0).await;
    scene.holds(5).await;
    report("partition", &scene, cut);
    scene.group.heal();
    scene.blocking(|group| group.settle().unwrap()).await;
    scene.holds(5).await;
    assert_eq!(scene.end().await, None, "two holders");
}

#[tokio::test]
async fn row_43_clients_that_believe_one_sentinel_are_two_holders() {
    let mut scene = Scene::new().await;
    for sentinel in 0..2 {
        scene.add(builder(scene.gullible(sentinel))).await;
    }
    scene.holds(5).await;
    scene.group.cut_off(&[0], &[0]);
    scene.other_master(0).await;
    let deadline = Instant::now() + PATIENCE;
    while scene.history.overlap().is_none() {
        assert!(Instant::now() < deadline, "the fault shows nothing");
        tokio::time::sleep(MS(20)).await;
    }
    assert!(scene.end().await.is_some());
}

#[tokio::test]
async fn row_43_clients_that_do_not_wait_after_a_failover_are_two_holders() {
    let scene = Scene::new().await;
    // A lock that outlives the failover, and a master that cannot pass it on.
    let hasty = || {
        let builder = builder(scene.node()).ttl(2 * PATIENCE);
        builder.durability(Durability::AssumedForTests).build()
    };
    let (first, second) = (hasty().await.unwrap(), hasty().await.unwrap());
    for client in [&first, &second] {
        client.ready(PATIENCE).await.unwrap();
    }
    scene.group.cut_off(&[0], &[0]);
    let options = LockOptions::new().no_renewal();
    let guard = first.lock("k").options(options).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let granted = loop {
        match second.try_lock("k").await {
            Ok(granted) => break granted,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(MS(20)).await;
    };
    assert!(guard.is_valid() && granted.is_valid(), "two holders");
}

#[tokio::test]
async fn row_43_a_master_that_pauses_and_continues() {
    let mut scene = Scene::new().await;
    for _ in 0..3 {
        scene.add(builder(scene.node())).await;
    }
    scene.holds(5).await;
    let pause = Instant::now();
    scene.group.server(0).freeze();
    scene.other_master(0).await;
    // It takes itself for the master, until a sentinel demotes it.
    scene.group.server(0).thaw();
    scene.holds(5).await;
    report("SIGSTOP and SIGCONT", &scene, pause);
    scene.blocking(|group| group.settle().unwrap()).await;
    scene.holds(5).await;
    assert_eq!(scene.end().await, None, "two holders");
}

#[tokio::test]
async fn row_44_without_a_majority_of_sentinels_there_is_no_vote() {
    let mut scene = Scene::new().await;
    for _ in 0..2 {
        scene.add(builder(scene.node())).await;
    }
    scene.holds(5).await;
    // One sentinel after the other restarts, and the two others go on.
    for number in 0..3 {
        let sentinel = move |group: &Sentinels| group.sentinel(number).restart().unwrap();
        scene.blocking(sentinel).await;
        scene.holds(5).await;
    }
    scene.group.sentinel(0).kill();
    scene.holds(5).await;
    scene.group.sentinel(1).freeze();
    tokio::time::sleep(WINDOW + TTL).await;
    let silent = scene.history.len();
    let error = scene.clients[0].try_lock("other").await.unwrap_err();
    assert!(error.to_string().contains("not confirmed"), "{error}");
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(scene.history.len(), silent, "no vote without a majority");
    let back = Instant::now();
    scene.group.sentinel(1).thaw();
    scene.holds(5).await;
    println!("again after {:.2} s", back.elapsed().as_secs_f64());
    assert_eq!(scene.end().await, None, "two holders");
}

/// What the tasks over three groups have seen.
#[derive(Default)]
struct Holds {
    history: History,
    /// How many holds have a vote of the first group, and how many have none.
    with_the_first: AtomicUsize,
    without_the_first: AtomicUsize,
}

impl Holds {
    /// Holds the lock again and again, and waits for the lock as long as it takes on a busy machine.
    async fn go_on(&self, redlock: &Redlock, first: &str, is_over: &AtomicBool) {
        while !is_over.load(SeqCst) {
            let guard = redlock.lock("k").wait(PATIENCE).await;
            let guard = guard.expect("two of three groups are a majority");
            let from = Instant::now();
            if let Acquisition::Granted { granted_by, .. } = guard.acquisition() {
                let has_first = granted_by.iter().any(|it| &**it == first);
                let count = if has_first {
                    &self.with_the_first
                } else {
                    &self.without_the_first
                };
                count.fetch_add(1, SeqCst);
            }
            tokio::time::sleep(MS(5)).await;
            let now = Instant::now();
            if guard.is_valid() {
                self.history.add("k", from, now);
            }
            guard.release().await;
        }
    }

    /// Waits until ten more holds are counted.
    async fn more(&self, count: &AtomicUsize, what: &str) {
        let enough = count.load(SeqCst) + 10;
        let is_enough = || count.load(SeqCst) >= enough;
        let deadline = Instant::now() + 2 * PATIENCE;
        while !is_enough() {
            assert!(Instant::now() < deadline, "no holds {what}");
            tokio::time::sleep(MS(10)).await;
        }
    }
}

#[tokio::test]
async fn row_43_nobody_notices_that_one_of_three_groups_fails_over() {
    let groups = (0..3).map(|_| {
        let group = Sentinels::builder().replicas(1).down_after(DOWN_AFTER);
        spawn_blocking(|| group.spawn().unwrap())
    });
    let groups = futures::future::join_all(groups).await;
    let groups: Vec<Arc<Sentinels>> = groups.into_iter().map(|it| Arc::new(it.unwrap())).collect();
    let first = RedisNode::from_url(&groups[0].url()).unwrap();
    let first = first.address().to_owned();
    let (holds, is_over) = (Holds::default(), AtomicBool::new(false));
    let mut clients = Vec::new();
    for _ in 0..2 {
        let builder = Redlock::builder()
            .nodes(groups.iter().map(|it| it.url()))
            .ttl(LONG_TTL);
        let builder = builder
            .confirmation_window(LONG_WINDOW)
            .node_timeout(NODE_TIMEOUT);
        let redlock = builder
            .connect_timeout(Duration::from_secs(5))
            .build()
            .await;
        let redlock = redlock.unwrap();
        redlock.ready(PATIENCE).await.unwrap();
        clients.push(redlock);
    }
    let votes = |redlock: &Redlock| redlock.nodes()[0].state == NodeState::Voting;
    let all_tasks = futures::future::join_all(
        clients
            .iter()
            .flat_map(|it| [it; 3])
            .map(|it| holds.go_on(it, &first, &is_over)),
    );
    let fault = async {
        holds
            .more(&holds.with_the_first, "before the failover")
            .await;
        groups[0].server(0).kill();
        let group = Arc::clone(&groups[0]);
        let promoted = spawn_blocking(move || group.wait_for_other_master(0).unwrap());
        assert_eq!(promoted.await.unwrap(), 1);
        holds
            .more(&holds.without_the_first, "after the failover")
            .await;
        let deadline = Instant::now() + 2 * PATIENCE;
        while !clients.iter().all(votes) {
            assert!(Instant::now() < deadline, "{:?}", clients[0].nodes());
            tokio::time::sleep(MS(20)).await;
        }
        holds.more(&holds.with_the_first, "of the new master").await;
        is_over.store(true, SeqCst);
    };
    tokio::join!(all_tasks, fault);
    assert_eq!(holds.history.overlap(), None, "two holders");
}
