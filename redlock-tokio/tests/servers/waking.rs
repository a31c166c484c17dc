//! A waiter wakes when the lock is free, whichever client held it. Over real servers.
//!
//! Where a test asserts that a waiter was woken, the waiter's own next attempt would come only after the
//! minutes of [`SELDOM`]. No test takes that long.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use redlock_kit::RedisServers;
use redlock_tokio::{
    Lock, LockError, LockGuard, LockOptions, NodeState, RedlockBuilder, ReleaseOutcome,
};
use tokio::{task::JoinHandle, time::timeout};

use crate::support::{Cli, MS, eventually, trusting};

const MINUTE: Duration = Duration::from_secs(60);

/// Looks again after ten minutes at the earliest.
fn seldom() -> LockOptions {
    LockOptions::new().retry_delay(10 * MINUTE, 20 * MINUTE)
}

/// Waits for the lock, and does not try again by itself while a test lasts.
fn sleeper(lock: Lock) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = lock.wait(60 * MINUTE).options(seldom());
    tokio::spawn(lock.into_future())
}

async fn is_woken(waiting: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    let answer = timeout(Duration::from_secs(10), waiting).await;
    answer.expect("it is woken").unwrap().unwrap()
}

/// Returns a builder whose node timeout a slow machine does not exceed, since a waiter that misses a
/// notification would look again only after ten minutes.
fn patient(servers: &RedisServers) -> RedlockBuilder {
    servers.builder().node_timeout(Duration::from_secs(2))
}

fn clis(servers: &RedisServers) -> Vec<Cli> {
    servers.iter().map(Cli::of).collect()
}

/// Waits until each server was probed this often. A probe makes the server send a notification when the
/// key changes.
async fn is_watched(nodes: &[Cli], probes: u64) {
    eventually("the key is probed", || {
        nodes.iter().all(|node| node.calls("pttl") >= probes)
    })
    .await;
}

#[tokio::test]
async fn a_foreign_delete_wakes_the_waiter() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let redlock = patient(&servers).build().await.unwrap();
    for node in &nodes {
        node.set("k", "foreign");
    }
    let waiting = sleeper(redlock.lock("k"));
    is_watched(&nodes, 1).await;
    assert_eq!(nodes[0].run(&["DEL", "k"]), "1");
    tokio::time::sleep(MS(200)).await;
    assert!(!waiting.is_finished(), "one of three is not enough");
    assert_eq!(nodes[1].run(&["DEL", "k"]), "1");
    drop(is_woken(waiting).await);
}

#[tokio::test]
async fn expiry_and_flushing_wake_the_waiter() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let redlock = patient(&servers).build().await.unwrap();
    for node in &nodes {
        node.run(&["SET", "k", "foreign", "PX", "300"]);
        node.set("other", "foreign");
    }
    let waiting = [sleeper(redlock.lock("k")), sleeper(redlock.lock("other"))];
    is_watched(&nodes, 2).await;
    let [expires, stays] = waiting;
    drop(is_woken(expires).await);
    assert!(!stays.is_finished());
    for node in &nodes {
        assert_eq!(node.run(&["FLUSHALL"]), "OK");
    }
    drop(is_woken(stays).await);
}

/// Without notifications, a lock is tried again when its keys must have expired.
#[tokio::test]
async fn without_notifications_the_clock_wakes_the_waiter() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let urls = servers.urls().into_iter();
    let resp2 = trusting(urls.map(|url| format!("{url}?protocol=resp2")));
    // Redis before 7.0 can only forbid the whole command.
    let forbidden = ["ACL", "SETUSER", "default", "-client"];
    let redlock = resp2.build().await.unwrap();
    for node in &nodes {
        node.run(&["SET", "k", "foreign", "PX", "300"]);
        assert_eq!(node.run(&forbidden), "OK");
    }
    drop(is_woken(sleeper(redlock.lock("k"))).await);
    // The same holds for a user without the right to notifications. After a release, the next probe finds
    // the free key.
    let redlock = patient(&servers).build().await.unwrap();
    for node in &nodes {
        node.run(&["SET", "k", "foreign", "PX", "300"]);
        node.run(&["SET", "other", "foreign", "PX", "60000"]);
    }
    drop(is_woken(sleeper(redlock.lock("k"))).await);
    let options = LockOptions::new().wait(MINUTE).retry_delay(MS(20), MS(50));
    let waiting = tokio::spawn(redlock.lock("other").options(options).into_future());
    is_watched(&nodes, 4).await;
    for node in &nodes {
        assert_eq!(node.run(&["DEL", "other"]), "1");
    }
    drop(is_woken(waiting).await);
}

/// The notification is lost with its connection.
#[tokio::test]
async fn the_next_probe_replaces_a_lost_notification() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let redlock = patient(&servers).build().await.unwrap();
    for node in &nodes {
        node.set("k", "foreign");
    }
    let options = LockOptions::new()
        .wait(MINUTE)
        .retry_delay(MS(300), MS(400));
    let waiting = tokio::spawn(redlock.lock("k").options(options).into_future());
    is_watched(&nodes, 1).await;
    for node in &nodes {
        node.run(&["CLIENT", "KILL", "TYPE", "normal"]);
        node.run(&["DEL", "k"]);
    }
    drop(is_woken(waiting).await);
}

/// The lock goes around between three processes that each have several waiters.
#[tokio::test]
async fn processes_wake_each_other() {
    const ROUNDS: usize = 40;
    let servers = RedisServers::spawn(3).unwrap();
    let processes = [
        patient(&servers).build().await.unwrap(),
        patient(&servers).build().await.unwrap(),
        patient(&servers).build().await.unwrap(),
    ];
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for redlock in &processes {
        for _ in 0..3 {
            let (redlock, inside) = (redlock.clone(), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let lock = redlock.lock("k").wait(60 * MINUTE);
                    let lock = lock.options(seldom().handover(false));
                    let guard = lock.await.unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two tasks are inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, SeqCst);
                    drop(guard);
                }
            }));
        }
    }
    let all = timeout(MINUTE, join_all(tasks))
        .await
        .expect("all are woken");
    all.into_iter().for_each(Result::unwrap);
    for redlock in processes {
        redlock.shutdown(None).await;
    }
    for node in clis(&servers) {
        assert_eq!(node.run(&["DBSIZE"]), "0");
    }
}

/// More waiters in a process do not cost more commands.
#[tokio::test]
async fn only_the_first_waiter_asks_the_nodes() {
    let servers = RedisServers::spawn(3).unwrap();
    let node = Cli::of(servers.get(0));
    let redlock = patient(&servers).build().await.unwrap();
    let mut costs = Vec::new();
    for waiters in [8, 128] {
        let foreign = patient(&servers).build().await.unwrap();
        let guard = foreign.lock("k").await.unwrap();
        let before = node.calls("set") + node.calls("pttl");
        let entries = (0..waiters).map(|_| {
            let lock = redlock.lock("k").wait(MINUTE);
            async move { drop(lock.options(seldom()).await.unwrap()) }
        });
        let all = tokio::spawn(join_all(entries.collect::<Vec<_>>()));
        tokio::time::sleep(MS(100)).await;
        drop(guard);
        timeout(MINUTE, all).await.expect("all are served").unwrap();
        costs.push(node.calls("set") + node.calls("pttl") - before);
    }
    assert!(costs[1] <= costs[0] + 20, "{costs:?}");
}

/// One node reports a free key but refuses to set it, and another node keeps a foreign key. A waiter still
/// pauses between its attempts.
#[tokio::test]
async fn a_free_key_on_a_node_that_refuses_is_not_tried_without_a_pause() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let redlock = patient(&servers).build().await.unwrap();
    assert_eq!(nodes[0].run(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    nodes[1].set("k", "foreign");
    let error = redlock.lock("k").wait(MS(1500)).await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    let attempts = error.attempts().map(|it| it.count);
    assert!(attempts < Some(60), "{error}");
}

/// A server that once refused the client may speak RESP3 later.
#[tokio::test]
async fn a_node_that_once_refused_is_asked_for_resp3_again() {
    let servers = RedisServers::spawn(1).unwrap();
    let node = Cli::of(servers.get(0));
    let redlock = patient(&servers).build().await.unwrap();
    assert_eq!(node.run(&["CONFIG", "SET", "requirepass", "x"]), "OK");
    let admin = Cli::of(servers.get(0)).with(&["-a", "x", "--no-auth-warning"]);
    admin.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    let is_refused = || matches!(redlock.nodes()[0].state, NodeState::Refused(_));
    eventually("it is refused", is_refused).await;
    assert_eq!(admin.run(&["CONFIG", "SET", "requirepass", ""]), "OK");
    drop(redlock.lock("k").wait(MINUTE).await.unwrap());
    assert!(node.has_clients_of_resp3());
}

/// Ten tasks wait for each of a thousand keys, and many of them give up at a random moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_give_up_leave_nothing_behind() {
    const KEYS: usize = 1000;
    const WAITERS: usize = 10;
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = patient(&servers).build().await.unwrap();
    let answered = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let mut tasks = Vec::new();
    for index in 0..KEYS * WAITERS {
        let (redlock, answered) = (redlock.clone(), Arc::clone(&answered));
        tasks.push(tokio::spawn(async move {
            let mut rng = Rng::with_seed(index as u64);
            let lock = redlock.lock(format!("k{}", index % KEYS)).wait(MINUTE);
            let patience = match rng.u8(0..3) {
                0 => Duration::from_micros(rng.u64(0..300_000)),
                _ => MINUTE,
            };
            match timeout(patience, lock.into_future()).await {
                Ok(guard) => {
                    let guard = guard.unwrap();
                    tokio::time::sleep(Duration::from_micros(rng.u64(0..4000))).await;
                    if rng.bool() {
                        drop(guard);
                    } else {
                        guard.release().await;
                    }
                    answered[0].fetch_add(1, SeqCst);
                }
                Err(_) => {
                    answered[1].fetch_add(1, SeqCst);
                }
            }
        }));
    }
    let all = timeout(2 * MINUTE, join_all(tasks)).await;
    all.expect("all are answered")
        .into_iter()
        .for_each(Result::unwrap);
    let [served, gave_up] = [0, 1].map(|index| answered[index].load(SeqCst));
    assert_eq!(served + gave_up, KEYS * WAITERS);
    assert!(
        served > KEYS && gave_up > 100,
        "{served} served, {gave_up} gave up"
    );
    let report = redlock.shutdown(None).await;
    assert_eq!((report.held, report.abandoned), (0, 0));
    let queue = redlock.queue();
    assert_eq!((queue.keys, queue.waiting), (0, 0));
    for node in clis(&servers) {
        assert_eq!(node.run(&["DBSIZE"]), "0");
    }
}

#[tokio::test]
async fn several_keys_are_locked_in_one_round_trip() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let redlock = patient(&servers).build().await.unwrap();
    // A session finds out once whether the server runs scripts.
    let at_connect: Vec<_> = nodes.iter().map(|node| node.calls("eval")).collect();
    let guard = redlock.lock_all(["b", "a"]).await.unwrap();
    let token = guard.value();
    for (node, at_connect) in nodes.iter().zip(at_connect) {
        eventually("both are set", || node.get("a").is_some()).await;
        assert_eq!(
            [node.get("a"), node.get("b")],
            [Some(token.clone()), Some(token.clone())]
        );
        let evals = node.calls("eval") - at_connect;
        assert_eq!((evals, node.calls("evalsha")), (1, 0));
    }
    guard.extend().await.unwrap();
    // This is how node-redlock acquires several resources.
    let theirs = "for _, key in ipairs(KEYS) do \
                    if redis.call('exists', key) == 1 then return 0 end \
                  end \
                  for _, key in ipairs(KEYS) do \
                    redis.call('set', key, ARGV[1], 'PX', ARGV[2]) \
                  end \
                  return #KEYS";
    let acquire = |node: &Cli| node.run(&["EVAL", theirs, "2", "b", "c", "foreign", "60000"]);
    for node in &nodes {
        assert_eq!(acquire(node), "0", "our lock excludes theirs");
    }
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    for node in &nodes {
        eventually("they are free", || node.get("a").is_none()).await;
        assert_eq!(acquire(node), "2");
    }
    // Their lock excludes ours until the last of its keys is gone.
    let waiting = sleeper(redlock.lock_all(["a", "b", "c"]));
    is_watched(&nodes, 3).await;
    for node in &nodes {
        node.run(&["DEL", "b"]);
    }
    tokio::time::sleep(MS(200)).await;
    assert!(!waiting.is_finished());
    for node in &nodes {
        node.run(&["DEL", "c"]);
    }
    let guard = is_woken(waiting).await;
    // Keys that a minority lost are set again.
    nodes[0].run(&["DEL", "a", "b", "c"]);
    guard.extend().await.unwrap();
    eventually("the key is repaired", || nodes[0].get("c").is_some()).await;
    drop(guard);
    redlock.shutdown(None).await;
    for node in &nodes {
        assert_eq!(node.run(&["DBSIZE"]), "0");
    }
}

/// The server sends a notification for each of three hundred keys. The waiter does not answer each of them
/// with a probe of all keys.
#[tokio::test]
async fn many_keys_are_probed_together() {
    const KEYS: u64 = 300;
    let servers = RedisServers::spawn(3).unwrap();
    let node = Cli::of(servers.get(0));
    let [ours, theirs] = [
        patient(&servers).build().await.unwrap(),
        patient(&servers).build().await.unwrap(),
    ];
    let keys: Vec<String> = (0..KEYS).map(|index| index.to_string()).collect();
    let guard = theirs.lock_all(&keys).await.unwrap();
    let waiting = sleeper(ours.lock_all(&keys));
    is_watched(&clis(&servers), KEYS).await;
    let before = node.calls("pttl");
    for _ in 0..3 {
        guard.extend().await.unwrap();
        tokio::time::sleep(MS(50)).await;
    }
    drop(guard);
    drop(is_woken(waiting).await);
    let probes = (node.calls("pttl") - before) / KEYS;
    assert!(probes < 30, "{probes} probes of each key");
}

#[tokio::test]
async fn several_keys_are_locked_without_one_node() {
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = patient(&servers).build().await.unwrap();
    servers.get(2).freeze();
    let guard = redlock.lock_all(["x", "y"]).await.unwrap();
    drop(guard);
    drop(redlock.lock("y").await.unwrap());
    servers.get(2).thaw();
    redlock.shutdown(None).await;
    assert_eq!(Cli::of(servers.get(2)).run(&["DBSIZE"]), "0");
}
