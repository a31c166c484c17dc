use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::sleep};

use super::foreign::seize;
use crate::{
    Result,
    args::Args,
    contestant::Contestant,
    contestants::{Ours, Plain},
    nodes, table,
    test_bed::{NODES, TestBed},
    times::Times,
};

/// How many of the keys are freed, one after the other.
const FREED: usize = 50;

/// How long all tasks have to begin to wait.
const START: Duration = Duration::from_secs(8);

/// Longer than the section lasts.
const TTL: Duration = Duration::from_secs(120);

const TOKEN: &str = "somebody else's";

/// Lets one process wait for many keys that another client holds, and prints what that costs the nodes.
pub(super) fn measure(bed: &TestBed, args: &Args, numbers: &[usize]) -> Result<()> {
    let mut table = table::new([
        "awaited keys",
        "commands/s of each node",
        "until a free key is locked, p50",
        "p99",
        "max",
    ]);
    for &keys in numbers {
        let (commands, delays) = bed.runtime.block_on(wait(bed, args, keys))?;
        let delays = delays.summary();
        table.add_row([
            keys.to_string(),
            format!("{commands:.0}"),
            table::time(delays.p50_us),
            table::time(delays.p99_us),
            table::time(delays.max_us),
        ]);
    }
    println!("## Many awaited keys\n\n{table}\n");
    Ok(())
}

async fn wait(bed: &TestBed, args: &Args, count: usize) -> Result<(f64, Times)> {
    let foreigner = Plain::connect(&bed.urls).await?;
    let contestant = Ours::connect(&bed.urls).await?;
    let keys: Vec<_> = (0..count).map(|_| bed.new_key()).collect();
    let mut waiting = JoinSet::new();
    for key in &keys {
        seize(&foreigner, key, TTL).await?;
        waiting.spawn(enter(contestant.clone(), key.clone()));
    }
    sleep(START).await;
    let before = nodes::commands(&bed.urls).await?;
    sleep(args.time).await;
    let commands = nodes::commands(&bed.urls).await? - before;
    let mut delays = Times::new()?;
    for key in keys.iter().step_by(count.div_ceil(FREED)) {
        foreigner.delete(key, TOKEN).await;
        let freed = Instant::now();
        let entered = waiting.join_next().await.ok_or("nobody waits")???;
        delays.record(entered.saturating_duration_since(freed));
    }
    Ok((
        commands.all / NODES as f64 / args.time.as_secs_f64(),
        delays,
    ))
}

/// Returns when the lock was acquired, after it was released.
async fn enter(contestant: Ours, key: String) -> Result<Instant> {
    let held = contestant.acquire(&key).await?;
    let entered = Instant::now();
    contestant.release(&key, held).await?;
    Ok(entered)
}
