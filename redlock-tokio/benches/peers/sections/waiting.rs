//! Many taken keys that are awaited at once: what that costs the nodes, and how soon a waiter has a key that is free.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use redlock_kit::RedisServers;
use redlock_tokio::Redlock;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    Result,
    shared::{nodes, table, times::Times},
};

/// After so long all waiters stand in line, and their first probes are answered.
const UNTIL_CALM: Duration = Duration::from_secs(30);

/// How many keys are released, one after the other.
const RELEASED: usize = 100;

/// Measures with one client that waits, and with eight that wait for the same keys.
pub(crate) async fn measure(keys: usize, seconds: u64) -> Result<String> {
    let mut table = table::new([
        "clients",
        "keys of each",
        "attempts for each key",
        "commands per second and node, in scripts too",
        "release to hold p50",
        "max",
    ]);
    for clients in [1, 8] {
        let keys = keys / clients;
        let row = row(clients, keys, Duration::from_secs(seconds)).await?;
        let [attempts, commands, p50, max] = row;
        table.add_row([
            clients.to_string(),
            keys.to_string(),
            attempts,
            commands,
            p50,
            max,
        ]);
    }
    Ok(format!("## Keys that are awaited, five nodes\n\n{table}\n"))
}

async fn row(clients: usize, keys: usize, measured: Duration) -> Result<[String; 4]> {
    let servers = RedisServers::spawn(5)?;
    let (urls, nodes) = (servers.urls(), servers.len() as f64);
    let client = || servers.builder().wait(Duration::MAX).build();
    // Not renewed meanwhile: an extension costs a command, and a notification.
    let holder = servers
        .builder()
        .ttl(Duration::from_secs(600))
        .build()
        .await?;
    let locks = (0..keys).map(|key| holder.lock(format!("k{key}")).into_future());
    let mut held = try_join_all(locks).await?.into_iter();
    let before = nodes::commands(&urls).await?;
    let mut waiting = JoinSet::new();
    for _ in 0..clients {
        let redlock: Redlock = client().await?;
        for key in 0..keys {
            let lock = redlock.lock(format!("k{key}"));
            waiting.spawn(async { lock.await.map(|guard| (Instant::now(), guard)) });
        }
    }
    sleep(UNTIL_CALM).await;
    let calm = nodes::commands(&urls).await?;
    sleep(measured).await;
    let commands = (nodes::commands(&urls).await? - calm).all;
    let (mut times, mut kept) = (Times::default(), Vec::new());
    for guard in held.by_ref().take(RELEASED) {
        let released = Instant::now();
        guard.release().await;
        let next = waiting.join_next().await.ok_or("nobody waits")?;
        let (got_at, guard) = next??;
        times.record(got_at - released);
        // The next one of its line gets it after the measurement.
        kept.push(guard);
    }
    let times = times.summary();
    Ok([
        format!(
            "{:.2}",
            (calm - before).sets / nodes / (clients * keys) as f64
        ),
        table::whole(commands / nodes / measured.as_secs_f64()),
        table::time(times.p50_us),
        table::time(times.max_us),
    ])
}
