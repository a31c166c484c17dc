//! Lanes to nodes that are slow. In paused time.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{FutureExt, future::join_all, join};
use redlock_tokio::{
    LockError, MemoryNode, RedlockBuilder, ReleaseOutcome,
    node::{Command, Node, Session},
};
use tokio::time::Instant;

use crate::support::{
    MS, built,
    scripted::{Scripted, over_custom},
};

fn over(nodes: impl IntoIterator<Item = impl Node>) -> RedlockBuilder {
    over_custom(nodes).max_ttl(MS(60_000))
}

/// A node that needs some time for each key and carries out one command after the other, like a server.
fn slow(per_key: Duration) -> Scripted {
    let free_at = Mutex::new(Instant::now());
    Scripted::new(&MemoryNode::new(), move |node, batch| {
        let mut free_at = free_at.lock().unwrap();
        let keys: usize = batch.iter().map(Command::key_count).sum();
        *free_at = (*free_at).max(Instant::now()) + per_key * keys as u32;
        let done_at = *free_at;
        let answers = node.execute(batch);
        async move {
            tokio::time::sleep_until(done_at).await;
            answers.await
        }
        .boxed()
    })
}

/// The tasks send more than a node can do within `node_timeout`. The excess waits in the lane's queue, where the timeout
/// does not run. Small requests go before large ones, but not for ever.
#[tokio::test(start_paused = true)]
async fn a_busy_node_is_not_taken_for_a_silent_one_and_many_keys_get_through_beside_single_ones() {
    const TASKS: usize = 3000;
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(20)));
    let redlock = built(over(nodes)).await;
    let start = Instant::now();
    let task = async |number: usize| {
        let key = format!("k{number}");
        let mut cycles = 0;
        while start.elapsed() < MS(500) {
            let guard = redlock.try_lock(&key).await.expect("its own key");
            guard.release().await;
            cycles += 1;
        }
        cycles
    };
    let several = async {
        let keys = (0..100).map(|key| format!("several:{key}"));
        let guard = redlock.lock_all(keys).await.expect("nobody else wants it");
        guard.release().await;
        start.elapsed()
    };
    let (several, cycles) = join!(several, join_all((0..TASKS).map(task)));
    assert!(several < MS(200), "{several:?}");
    let cycles: u32 = cycles.into_iter().sum();
    assert!(cycles >= 12_000, "{cycles} of about 12 500 possible ones");
}

/// More is asked for than the nodes can do in time. They do a part of it, and the rest is refused when its time is over, with
/// an error that does not blame the nodes.
#[tokio::test(start_paused = true)]
async fn locks_that_are_too_many_for_the_nodes_are_refused_as_overloaded() {
    const TASKS: usize = 200;
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(5)));
    let redlock = built(over(nodes)).await;
    let lock = async |task: usize| {
        let keys = (0..1000).map(|key| format!("{task}:{key}"));
        redlock.lock_all(keys).wait(MS(300)).await
    };
    let start = Instant::now();
    let outcomes = join_all((0..TASKS).map(lock)).await;
    assert!(start.elapsed() < MS(400), "{:?}", start.elapsed());
    let (granted, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(granted.len() >= 56, "{} of {TASKS}", granted.len());
    assert!(!refused.is_empty());
    for error in refused.into_iter().filter_map(Result::err) {
        assert!(matches!(error, LockError::Overloaded(_)), "{error}");
    }
    drop(granted);
    assert_eq!(redlock.shutdown(None).await.abandoned, 0);
}

/// A process whose extensions take most of what the nodes can do asks for more locks. It keeps those that it has, and gets
/// some of the others.
#[tokio::test(start_paused = true)]
async fn an_overloaded_process_keeps_the_locks_that_it_holds() {
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(300)));
    let redlock = built(over(nodes).node_timeout(MS(500))).await;
    // Each is extended three times a second, which is two thirds of what a node can do.
    let held = (0..700).map(|key| {
        redlock
            .lock(format!("held:{key}"))
            .ttl(MS(1000))
            .into_future()
    });
    let held = join_all(held).await;
    let held: Vec<_> = held.into_iter().map(|it| it.expect("free")).collect();
    let more = (0..10_000).map(|key| {
        redlock
            .lock(format!("more:{key}"))
            .wait(MS(3000))
            .into_future()
    });
    let more = join_all(more.map(|it| async { it.await.map(drop) })).await;
    let lost = held.iter().filter(|it| !it.is_valid()).count();
    assert_eq!(lost, 0, "of {}", held.len());
    let granted = more.iter().filter(|it| it.is_ok()).count();
    assert!(
        (100..10_000).contains(&granted),
        "{granted} of {}",
        more.len()
    );
}

/// What a process releases is free soon, even if it holds a third more than it can extend.
#[tokio::test(start_paused = true)]
async fn a_release_gets_through_beside_more_extensions_than_the_nodes_can_do() {
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(300)));
    let redlock = built(over(nodes).node_timeout(MS(500))).await;
    let lock = |key: usize| redlock.lock(key.to_string()).ttl(MS(2000)).into_future();
    // A part may be refused or lost.
    let held = join_all((0..3000).map(lock)).await.into_iter();
    let mut held: Vec<_> = held.filter_map(Result::ok).collect();
    let granted = held.len();
    tokio::time::sleep(MS(3000)).await;
    held.retain(|it| it.is_valid());
    assert!(held.len() > 2000, "{} of {granted}", held.len());
    let start = Instant::now();
    let report = held.remove(0).release().await;
    assert_eq!(report.outcome, ReleaseOutcome::Released);
    assert!(start.elapsed() < MS(600), "{:?}", start.elapsed());
}

/// A node has more time for more keys in flight, so a node that falls silent is noticed soon only if the keys are few.
#[tokio::test(start_paused = true)]
async fn requests_wait_while_a_node_has_more_than_512_keys_to_answer_for() {
    // A node that counts the keys that it is asked for, and never answers.
    let keys = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&keys);
    let mute = Scripted::new(&MemoryNode::new(), move |_, batch| {
        count.fetch_add(batch.iter().map(Command::key_count).sum(), Relaxed);
        pending().boxed()
    });
    let redlock = built(over([mute])).await;
    let lock = async |name: usize, keys: usize| {
        let keys = (0..keys).map(|key| format!("{name}:{key}"));
        redlock.lock_all(keys).await.expect_err("no answer")
    };
    let asked = async || {
        tokio::time::sleep(MS(1)).await;
        keys.load(Relaxed)
    };
    // The first batch leaves room for one key. Then come full batches of small and of large requests.
    let first = async { join!(lock(0, 511), asked()).1 };
    let small = join_all((1..512).map(|it| lock(it, 1)).chain([lock(512, 16)]));
    let large = async { join!(lock(513, 511), lock(514, 1024)) };
    let second = async {
        tokio::time::sleep(MS(2)).await;
        join!(small, large, asked()).2
    };
    let (first, second) = join!(first, second);
    assert_eq!(first, 511);
    // No large requests come after the small ones.
    assert_eq!(second, 511 + 511 + 16);
}
