//! The turns of several processes at one busy lock, over real servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redlock_tokio::{LockOptions, Redlock, RedlockBuilder, test_util::RedisServers};
use tokio::task::JoinSet;

use crate::support::{Cli, MS, trusting};

/// How long the clients compete.
const TIME: Duration = Duration::from_secs(3);

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

/// Runs a client beside a busy process. The client has no right to the keys of lines, and polls, as the clients of other libraries do.
/// Returns the longest time for which it had no lock, the time at the end included.
async fn longest_shut_out(configure: impl FnOnce(RedlockBuilder) -> RedlockBuilder) -> Duration {
    let servers = RedisServers::spawn(3).unwrap();
    for server in 0..3 {
        let cli = Cli::of(servers.get(server));
        let user = [
            "ACL", "SETUSER", "poller", "on", ">secret", "+@all", "&*", "~k",
        ];
        assert_eq!(cli.run(&user), "OK");
    }
    let urls = servers.urls().into_iter().map(|url| {
        let url = url.replace("redis://", "redis://poller:secret@");
        format!("{url}?protocol=resp2")
    });
    let poller = trusting(urls).wait(TIME).build().await.unwrap();
    let busy = BusyProcess::start(configure(servers.builder())).await;
    let start = Instant::now();
    let mut last = start;
    let mut longest = Duration::ZERO;
    while let Some(left) = TIME.checked_sub(start.elapsed()) {
        let polls = LockOptions::new().max_attempts(u32::MAX);
        let guard = poller.lock("k").wait(left).options(polls).await;
        longest = longest.max(last.elapsed());
        last = Instant::now();
        drop(guard);
    }
    busy.end().await;
    poller.shutdown().await;
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_47_a_client_that_polls_is_not_shut_out_by_a_busy_process() {
    let longest = longest_shut_out(|builder| builder.poller_share(40)).await;
    // The control: a process that keeps the lock to itself.
    let alone = longest_shut_out(|builder| builder.poller_share(0)).await;
    assert!(
        longest < MS(2500) && alone > MS(2500),
        "shut out for {longest:?}, {alone:?} in the control"
    );
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
