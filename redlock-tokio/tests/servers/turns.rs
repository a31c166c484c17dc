//! The turns of several processes at one busy lock, over real servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use redlock_tokio::{Redlock, RedlockBuilder, test_util::RedisServers};
use tokio::task::JoinSet;

use crate::support::MS;

const BUSY_TASKS: usize = 8;
const HOLD: Duration = Duration::from_millis(1);

/// A service whose tasks keep one key busy until [`end`](Self::end).
struct BusyProcess {
    redlock: Redlock,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl BusyProcess {
    async fn start(builder: RedlockBuilder) -> Self {
        let redlock = builder.wait(Duration::from_secs(60)).build().await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..BUSY_TASKS {
            let (redlock, stop) = (redlock.clone(), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(SeqCst) {
                    let guard = redlock.lock("k").await.unwrap();
                    tokio::time::sleep(HOLD).await;
                    drop(guard);
                }
            });
        }
        Self {
            redlock,
            stop,
            tasks,
        }
    }

    async fn end(self) {
        self.stop.store(true, SeqCst);
        self.tasks.join_all().await;
        self.redlock.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_a_long_turn_makes_room_for_a_newcomer() {
    let servers = RedisServers::spawn(3).unwrap();
    let first = BusyProcess::start(servers.builder()).await;
    tokio::time::sleep(MS(300)).await;
    let second = BusyProcess::start(servers.builder()).await;
    let guard = second.redlock.lock("k").wait(MS(2000)).await;
    assert!(guard.is_ok(), "{guard:?}");
    drop(guard);
    first.end().await;
    second.end().await;
}
