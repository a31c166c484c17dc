use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::{task::JoinSet, time::sleep};

use super::Bench;
use crate::{
    Result,
    bed::{Bed, NODES},
    nodes, table,
    times::Times,
};

/// How many keys are awaited, each by one client. Of several clients each awaits a part of them.
const KEYS: usize = 20_000;

/// After so long all waiters stand in line, and their first probes are answered.
const UNTIL_CALM: Duration = Duration::from_secs(30);

/// How long the commands are counted.
const CALM: Duration = Duration::from_secs(30);

/// How many keys are released, one after the other.
const RELEASED: usize = 100;

/// What it costs the nodes that many taken keys are awaited at once, and how soon a waiter has a key that is free.
pub(super) fn measure(_bench: &mut Bench) -> Result<()> {
    let mut table = table::new([
        "clients",
        "keys of each",
        "attempts for each key",
        "commands per second and node, in scripts too",
        "release to hold p50",
        "max",
    ]);
    for clients in [1, 8] {
        let bed = Bed::near()?;
        let row = wait(&bed, clients, KEYS / clients);
        table.add_row(bed.runtime.block_on(row)?);
    }
    println!("## Keys that are awaited, five nodes\n\n{table}\n");
    Ok(())
}

async fn wait(bed: &Bed, clients: usize, keys: usize) -> Result<[String; 6]> {
    let builder = || bed.servers.builder();
    // Not renewed meanwhile: an extension costs a command, and a notification.
    let holder = builder().ttl(Duration::from_secs(600)).build().await?;
    let locks = (0..keys).map(|key| holder.lock(format!("k{key}")).into_future());
    let mut held = try_join_all(locks).await?.into_iter();
    let before = nodes::commands(&bed.urls).await?;
    let mut waiting = JoinSet::new();
    for _ in 0..clients {
        let redlock = builder().wait(Duration::MAX).build().await?;
        for key in 0..keys {
            let lock = redlock.lock(format!("k{key}"));
            waiting.spawn(async { lock.await.map(|guard| (Instant::now(), guard)) });
        }
    }
    sleep(UNTIL_CALM).await;
    let calm = nodes::commands(&bed.urls).await?;
    sleep(CALM).await;
    let commands = (nodes::commands(&bed.urls).await? - calm).all;
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
    let attempts = (calm - before).sets / (NODES * clients * keys) as f64;
    Ok([
        clients.to_string(),
        keys.to_string(),
        format!("{attempts:.2}"),
        table::whole(commands / NODES as f64 / CALM.as_secs_f64()),
        table::time(times.p50_us),
        table::time(times.max_us),
    ])
}
