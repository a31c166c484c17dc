//! Lanes to nodes that are slow, or whose connections break at the worst moment. In paused time.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{join_all, ready},
    join,
};
use redlock_tokio::{
    LockError, MemoryNode, NodeState, NodeStatus, RedlockBuilder,
    node::{Command, Node, Session},
};
use tokio::time::Instant;

use crate::support::{
    MS, built,
    scripted::{Answers, Scripted, over_custom},
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

/// The tasks send more than a node can do within `node_timeout`. The excess waits in the lane's queue,
/// where the timeout does not run.
#[tokio::test(start_paused = true)]
async fn a_busy_node_is_not_taken_for_a_silent_one() {
    const TASKS: usize = 3000;
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(20)));
    let redlock = built(over(nodes)).await;
    let end = Instant::now() + MS(500);
    let task = async |number: usize| {
        let key = format!("k{number}");
        let mut cycles = 0;
        while Instant::now() < end {
            let guard = redlock.try_lock(&key).await.expect("its own key");
            guard.release().await;
            cycles += 1;
        }
        cycles
    };
    let cycles: u32 = join_all((0..TASKS).map(task)).await.into_iter().sum();
    assert!(cycles >= 12_000, "{cycles} of about 12 500 possible ones");
}

/// Small requests go before large ones, but not for ever.
#[tokio::test(start_paused = true)]
async fn a_lock_of_many_keys_gets_through_beside_single_keys_that_fill_the_nodes() {
    const TASKS: usize = 3000;
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(20)));
    let redlock = built(over(nodes)).await;
    let start = Instant::now();
    let task = async |number: usize| {
        let key = format!("k{number}");
        while start.elapsed() < MS(1000) {
            let guard = redlock.lock(&key).await.expect("each task has its own key");
            guard.release().await;
        }
    };
    let several = async {
        let keys = (0..100).map(|key| format!("several:{key}"));
        let guard = redlock.lock_all(keys).await.expect("nobody else wants it");
        guard.release().await;
        start.elapsed()
    };
    let (several, _) = join!(several, join_all((0..TASKS).map(task)));
    assert!(several < MS(200), "{several:?}");
}

/// A command for a thousand keys is as much work as a thousand commands. So 64 such commands fill the nodes, and none
/// of the nodes counts as silent. A lock of one key does not wait behind all of them.
#[tokio::test(start_paused = true)]
async fn locks_of_a_thousand_keys_neither_silence_the_nodes_nor_delay_single_ones() {
    const TASKS: usize = 64;
    const KEYS: usize = 1000;
    // Each node carries out 200 keys in a millisecond.
    let nodes = [(); 5].map(|()| slow(Duration::from_micros(5)));
    let redlock = built(over(nodes)).await;
    let end = Instant::now() + MS(2000);
    let several = async |task: usize| {
        let mut entries = 0;
        while Instant::now() < end {
            let keys = (0..KEYS).map(|key| format!("{task}:{key}"));
            let guard = redlock.lock_all(keys).await;
            let guard = guard.unwrap_or_else(|error| panic!("after {entries} entries: {error}"));
            guard.release().await;
            entries += 1;
        }
        entries
    };
    let single = async {
        let mut longest = Duration::ZERO;
        while Instant::now() < end {
            let asked = Instant::now();
            let guard = redlock.lock("single").await.unwrap();
            longest = longest.max(asked.elapsed());
            guard.release().await;
        }
        longest
    };
    let silence = async {
        let mut silent = 0;
        while Instant::now() < end {
            let nodes = redlock.nodes();
            let is_silent = |it: &&NodeStatus| it.state == NodeState::Silent;
            silent += nodes.iter().filter(is_silent).count();
            tokio::time::sleep(MS(1)).await;
        }
        silent
    };
    let (entries, longest, silent) = join!(join_all((0..TASKS).map(several)), single, silence);
    assert_eq!(silent, 0);
    // To set and to release the keys of one task takes 10 ms.
    let total: u32 = entries.iter().sum();
    println!("{total} locks of {KEYS} keys, a single key waits {longest:?} at most");
    assert!(total >= 190, "{total} of about 200 possible ones");
    assert!(entries.iter().all(|it| *it > 0), "{entries:?}");
    assert!(longest <= MS(25), "{longest:?}");
}

/// More is asked for than the nodes can do in time. What they can do is done, and the rest is refused with an error that
/// does not blame the nodes.
#[tokio::test(start_paused = true)]
async fn locks_that_are_too_many_for_the_nodes_are_refused_as_overloaded() {
    const TASKS: usize = 200;
    let nodes = [(); 3].map(|()| slow(Duration::from_micros(5)));
    let redlock = built(over(nodes)).await;
    let lock = async |task: usize| {
        let keys = (0..1000).map(|key| format!("{task}:{key}"));
        redlock.lock_all(keys).wait(MS(300)).await
    };
    let outcomes = join_all((0..TASKS).map(lock)).await;
    let (granted, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(granted.len() >= 128, "{} of {TASKS}", granted.len());
    assert!(!refused.is_empty());
    for error in refused.into_iter().filter_map(Result::err) {
        assert!(matches!(error, LockError::Overloaded(_)), "{error}");
    }
    drop(granted);
    assert_eq!(redlock.shutdown(None).await.abandoned, 0);
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

/// The state of a node that answers the first batch late, strands the second one on its way, and loses all later ones with the
/// connection.
#[derive(Default)]
struct Stranded {
    connections: u32,
    batches: u32,
    commands: Vec<Command>,
}

impl Stranded {
    fn execute(&mut self, node: &mut MemoryNode, batch: &[Command]) -> Answers {
        self.batches += 1;
        match (self.connections, self.batches) {
            (1, 1) => {
                let answers = node.execute(batch);
                async move {
                    tokio::time::sleep(MS(80)).await;
                    answers.await
                }
                .boxed()
            }
            (1, 2) => {
                self.commands.extend_from_slice(batch);
                pending().boxed()
            }
            (1, _) => pending().boxed(),
            _ => node.execute(batch),
        }
    }
}

/// An owed release that is lost with its connection is owed again, because the request to set the key may
/// still arrive.
#[tokio::test(start_paused = true)]
async fn an_owed_release_that_was_in_flight_is_still_owed() {
    let [mut inner, second, third] = [(); 3].map(|()| MemoryNode::new());
    let stranded = Arc::new(Mutex::new(Stranded::default()));
    let (opened, asked) = (Arc::clone(&stranded), Arc::clone(&stranded));
    let stranding = Scripted::new(&inner, move |node, batch| {
        asked.lock().unwrap().execute(node, batch)
    });
    let stranding = stranding.connect(move || {
        opened.lock().unwrap().connections += 1;
        ready(Ok(())).boxed()
    });
    let builder = over([second, third]).custom_nodes([stranding]);
    let redlock = built(builder.ttl(MS(60_000))).await;
    let first = redlock.lock("first").await.expect("two of three");
    tokio::time::sleep(MS(40)).await;
    let guard = redlock.lock("k").await.expect("two of three");
    tokio::time::sleep(MS(20)).await;
    // The node counts as silent by now, so this release is owed. It is in flight when the connection
    // breaks.
    drop(guard);
    tokio::time::sleep(MS(3000)).await;
    let connections = stranded.lock().unwrap().connections;
    assert!(connections > 1, "the first connection broke");

    let commands = std::mem::take(&mut stranded.lock().unwrap().commands);
    assert_eq!(commands.len(), 1, "the request to set k");
    drop(inner.execute(&commands));
    assert!(inner.contains("k"), "it arrived late");
    tokio::time::sleep(MS(1000)).await;
    assert!(!inner.contains("k"), "and was released");
    drop(first);
}
