//! Scheduled jobs over real servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock_kit::RedisServers;
use redlock_tokio::{LockOptions, OnceOutcome, Redlock};
use tokio::{task::JoinSet, time::sleep};

use crate::support::MS;

/// How much later each host's clock is than that of the host before. The last one is late by almost half of the span.
const LATE: Duration = Duration::from_millis(300);

const TTL: Duration = Duration::from_secs(2);

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_once_though_clocks_differ_by_more_than_it_takes_and_a_server_restarts() {
    let servers = RedisServers::spawn(3).unwrap();
    let mut hosts = Vec::new();
    for host in 0..4 {
        let clock = move || since_1970() - host * LATE;
        let builder = Redlock::builder().nodes(servers.urls()).ttl(TTL);
        let builder = builder.node_timeout(MS(500)).wall_clock(clock);
        hosts.push(builder.build().await.unwrap());
    }
    for host in &hosts {
        host.ready(Duration::from_secs(15)).await.unwrap();
    }
    let first = since_1970() + MS(200);
    let (mut runs, mut counts) = (JoinSet::new(), Vec::new());
    for number in 0..60 {
        let fire_time = UNIX_EPOCH + first + number * MS(50);
        let count = Arc::new(AtomicUsize::new(0));
        for host in &hosts {
            let options = LockOptions::new().wait(MS(800));
            let run = host.once("job", fire_time).options(options);
            let count = Arc::clone(&count);
            runs.spawn(run.run(async move |_| count.fetch_add(1, Relaxed)));
        }
        counts.push(count);
    }
    sleep(MS(1500)).await;
    servers.get(0).kill();
    sleep(MS(200)).await;
    servers.get(0).restart().unwrap();
    let mut elsewhere = 0;
    while let Some(outcome) = runs.join_next().await {
        let outcome = outcome.unwrap();
        elsewhere += usize::from(matches!(outcome, Ok(OnceOutcome::RunElsewhere(_))));
    }
    let counts: Vec<_> = counts.iter().map(|count| count.load(Relaxed)).collect();
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    // Some answers may be lost with the server.
    let have_run: usize = counts.iter().sum();
    assert!(have_run > 50 && elsewhere > 150, "{counts:?}, {elsewhere}");
}
