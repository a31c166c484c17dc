//! The memory of a held lock and of a waiter.

use std::{sync::Arc, time::Duration};

use allocation_counter::measure;
use redlock_tokio::{Clock, LockGuard, LockOptions, Redlock};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use crate::{peak::Forgetful, support::in_memory::Opens};

/// The tables are as full as with four times as many.
const MANY: usize = 5_000;

/// A client of nodes that keep nothing, on a runtime with one thread and a paused clock: all tasks run on the thread
/// whose allocations are counted.
fn client() -> (Runtime, Arc<Redlock>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let nodes = [(); 5].map(|()| Opens::new(Forgetful));
    let options = LockOptions::new()
        .wait(Duration::from_secs(3600))
        .max_waiters_per_key(MANY);
    let builder = Redlock::builder().custom_nodes(nodes).options(options);
    let builder = builder.max_waiters_total(2 * MANY).clock(Clock::tokio());
    let redlock = runtime.block_on(builder.build()).unwrap();
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

fn spawn(runtime: &Runtime, redlock: &Arc<Redlock>, key: String) -> JoinHandle<()> {
    let redlock = Arc::clone(redlock);
    runtime.spawn(async move {
        let guard = redlock.lock(key).await.unwrap();
        drop(guard);
    })
}

async fn until_waiting(redlock: &Redlock, waiting: usize) {
    while redlock.queue().waiting < waiting {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_task_that_waits_in_a_long_line_weighs_little() {
    let (runtime, redlock) = client();
    let guard = runtime.block_on(redlock.lock("k").into_future()).unwrap();
    let mut tasks = Vec::with_capacity(MANY);
    let bytes = bytes_of_each(&runtime, &mut tasks, async |tasks| {
        tasks.extend((0..MANY).map(|_| spawn(&runtime, &redlock, "k".into())));
        until_waiting(&redlock, MANY).await;
    });
    println!("a task that waits in a line: {bytes:.0} B");
    runtime.block_on(async {
        drop(guard);
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(bytes < 650.0, "{bytes:.0} B for each waiter");
}

#[test]
fn a_task_that_waits_for_a_lock_of_its_own_weighs_little() {
    let (runtime, redlock) = client();
    let guards: Vec<_> = runtime.block_on(async {
        let mut guards = Vec::new();
        for number in 0..MANY {
            guards.push(redlock.lock(number.to_string()).await.unwrap());
        }
        guards
    });
    let mut tasks = Vec::with_capacity(MANY);
    let bytes = bytes_of_each(&runtime, &mut tasks, async |tasks| {
        tasks.extend((0..MANY).map(|number| spawn(&runtime, &redlock, number.to_string())));
        until_waiting(&redlock, MANY).await;
    });
    println!("a task that waits for a lock of its own: {bytes:.0} B");
    runtime.block_on(async {
        drop(guards);
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(bytes < 650.0, "{bytes:.0} B for each waiter");
}
