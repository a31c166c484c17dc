//! The memory that a peak leaves behind.

use allocation_counter::measure;
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use redlock_tokio::{
    Lock, NodeError, Redlock,
    node::{Answer, Command, Session, Vote},
};

use crate::support::{
    built,
    in_memory::{Opens, paused_runtime},
    scripted::over_custom,
};

/// A session that grants everything and remembers nothing.
#[derive(Clone)]
pub(crate) struct Forgetful;

impl Session for Forgetful {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let answers = batch.iter().map(|_| Ok(Vote::Granted)).collect();
        async { Ok(answers) }.boxed()
    }
}

type Request = fn(&Redlock, String) -> Lock;

/// Holds so many locks at once, and releases them.
async fn hold_at_once(redlock: &Redlock, locks: usize, request: Request) {
    let lock = async |key: usize| request(redlock, key.to_string()).await.unwrap();
    let guards = join_all((0..locks).map(lock)).await;
    join_all(guards.into_iter().map(|it| it.release())).await;
}

/// All tasks run on the thread whose allocations are counted.
#[test]
fn twenty_thousand_keys_that_were_busy_at_once_leave_no_memory_behind() {
    const PEAK: usize = 20_000;
    let runtime = paused_runtime();
    let nodes = [(); 3].map(|()| Opens::new(Forgetful));
    // By tokio's clock, which is paused, a slow machine loses no lock.
    let redlock = runtime.block_on(built(over_custom(nodes)));
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
