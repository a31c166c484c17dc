//! The memory of a held lock, of a waiter, and the memory that a peak leaves behind.

use std::{sync::Arc, time::Duration};

use allocation_counter::measure;
use futures::{
    FutureExt,
    future::{join_all, ready, try_join_all},
};
use redlock_tokio::{
    Lock, LockGuard, LockOptions, Redlock,
    node::{Command, Session, Vote},
};
use tokio::runtime::Runtime;

use crate::support::{
    built,
    in_memory::{Opens, paused_runtime},
    scripted::{Answers, over_custom},
};

/// A session that grants everything and remembers nothing.
#[derive(Clone)]
struct Forgetful;

impl Session for Forgetful {
    fn execute(&mut self, batch: &[Command]) -> Answers {
        ready(Ok(batch.iter().map(|_| Ok(Vote::Granted)).collect())).boxed()
    }
}

/// The tables are as full as with four times as many.
const MANY: usize = 5_000;

/// A client of nodes that keep nothing, on a runtime with one thread and a paused clock: all tasks run on the thread
/// whose allocations are counted.
fn client() -> (Runtime, Arc<Redlock>) {
    let runtime = paused_runtime();
    let nodes = [(); 5].map(|()| Opens::new(Forgetful));
    let options = LockOptions::new()
        .wait(Duration::from_secs(3600))
        .max_waiters_per_key(MANY);
    let builder = over_custom(nodes).options(options);
    let redlock = runtime.block_on(built(builder.max_waiters_total(2 * MANY)));
    (runtime, Arc::new(redlock))
}

/// Returns the bytes of each of so many things that the work leaves in its argument.
fn bytes_of_each<T>(
    runtime: &Runtime,
    things: &mut Vec<T>,
    work: impl AsyncFnOnce(&mut Vec<T>),
) -> f64 {
    let before = things.len();
    let left = measure(|| runtime.block_on(work(things)));
    left.bytes_current as f64 / (things.len() - before) as f64
}

#[test]
fn a_held_and_renewed_lock_weighs_little() {
    let (runtime, redlock) = client();
    let mut guards: Vec<LockGuard> = Vec::with_capacity(2 * MANY);
    let mut hold = |count| {
        bytes_of_each(&runtime, &mut guards, async |guards| {
            let first = guards.len();
            for number in first..first + count {
                guards.push(redlock.lock(format!("held:{number}")).await.unwrap());
            }
            // All are renewed.
            tokio::time::sleep(Duration::from_secs(4)).await;
        })
    };
    // The tables have their sizes.
    hold(100);
    let bytes = hold(MANY);
    println!("a held and renewed lock: {bytes:.0} B");
    // Outside the runtime the clock would be the machine's, which may be seconds ahead.
    runtime.block_on(async { assert!(guards.iter().all(|guard| guard.is_valid())) });
    assert!(bytes < 700.0, "{bytes:.0} B for each lock");
}

/// Returns the bytes of each task that waits for one of these keys.
fn bytes_of_each_waiter(held: &[String]) -> f64 {
    let (runtime, redlock) = client();
    let guards = runtime.block_on(async {
        let mut guards = Vec::new();
        for key in held {
            guards.push(redlock.lock(key).await.unwrap());
        }
        guards
    });
    let mut tasks = Vec::with_capacity(MANY);
    let bytes = bytes_of_each(&runtime, &mut tasks, async |tasks| {
        tasks.extend(held.iter().cycle().take(MANY).map(|key| {
            let (redlock, key) = (Arc::clone(&redlock), key.clone());
            tokio::spawn(async move { drop(redlock.lock(key).await.unwrap()) })
        }));
        while redlock.queue().waiting < MANY {
            tokio::task::yield_now().await;
        }
    });
    runtime.block_on(async {
        drop(guards);
        try_join_all(tasks).await.unwrap();
    });
    bytes
}

#[test]
fn a_task_that_waits_weighs_little_in_a_long_line_and_in_one_of_its_own() {
    let own: Vec<_> = (0..MANY).map(|it| it.to_string()).collect();
    for held in [&own[..1], &own] {
        let bytes = bytes_of_each_waiter(held);
        println!(
            "a task that waits for one of {} keys: {bytes:.0} B",
            held.len()
        );
        assert!(bytes < 900.0, "{bytes:.0} B for each waiter");
    }
}

type Request = fn(&Redlock, String) -> Lock;

/// Holds so many locks at once, and releases them.
async fn hold_at_once(redlock: &Redlock, locks: usize, request: Request) {
    let lock = async |key: usize| request(redlock, key.to_string()).await.unwrap();
    let guards = join_all((0..locks).map(lock)).await;
    join_all(guards.into_iter().map(|it| it.release())).await;
}

#[test]
fn twenty_thousand_keys_that_were_busy_at_once_leave_no_memory_behind() {
    const PEAK: usize = 20_000;
    let (runtime, redlock) = client();
    let requests: [(&str, Request); 3] = [
        ("lock", |redlock, key| redlock.lock(key)),
        ("permit", |redlock, key| redlock.semaphore(key, 1).acquire()),
        ("reader", |redlock, key| redlock.rw_lock(key).read()),
    ];
    for (kind, request) in requests {
        runtime.block_on(hold_at_once(&redlock, 100, request));
        let left = measure(|| runtime.block_on(hold_at_once(&redlock, PEAK, request)));
        let per_key = left.bytes_current as f64 / PEAK as f64;
        println!("{kind}: {per_key:.1} B for each key");
        assert!(per_key < 5.0, "{kind}: {per_key} B for each key");
    }
}
