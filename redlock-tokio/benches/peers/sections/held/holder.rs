use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use redlock_tokio::{Durability, LockGuard, MemoryNode, Redlock};

use super::{
    Order,
    process::{cpu_time, resident_bytes},
};
use crate::{
    Result,
    shared::{nodes, table},
};

const TTL: Duration = Duration::from_secs(30);

/// As many tasks acquire and release at the same time.
const TASKS: usize = 256;

/// How long everything but the holding may take, and how much longer for each guard.
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_PER_GUARD: Duration = Duration::from_micros(500);

/// Holds what it is told to, and returns what that cost. Runs in a process of its own.
pub(crate) async fn hold(order: &str) -> Result<String> {
    let order: Order = serde_json::from_str(order)?;
    let guards = u32::try_from(order.guards)?;
    let limit = LIMIT + LIMIT_PER_GUARD * guards + Duration::from_secs(order.seconds);
    tokio::time::timeout(limit, carry_out(&order))
        .await
        .map_err(|_| format!("the holder was not done within {limit:?}"))?
}

async fn connect(urls: &[String]) -> Result<Redlock> {
    let builder = Redlock::builder()
        .durability(Durability::AssumedForTests)
        .ttl(TTL)
        .max_hold(Duration::from_secs(3600))
        .wait(Duration::from_secs(20));
    let builder = if urls.is_empty() {
        builder.custom_nodes((0..5).map(|_| MemoryNode::new()))
    } else {
        builder.nodes(urls)
    };
    Ok(builder.build().await?)
}

async fn carry_out(order: &Order) -> Result<String> {
    let redlock = connect(&order.urls).await?;
    // The process has its buffers and threads before it is weighed.
    acquire_all(&redlock, 1024.min(order.guards)).await?.clear();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let empty = resident_bytes()?;

    let start = Instant::now();
    let mut guards = acquire_all(&redlock, order.guards).await?;
    let acquire = start.elapsed();
    let full = resident_bytes()?;

    // From here on what is measured begins and ends between two extensions of all.
    let rest = (TTL / 6).min(Duration::from_secs(order.seconds) / 6);
    tokio::time::sleep(rest).await;
    let calls = nodes::commands(&order.urls).await?;
    let (start, cpu) = (Instant::now(), cpu_time());
    tokio::time::sleep(Duration::from_secs(order.seconds)).await;
    let (held, cpu) = (start.elapsed(), cpu_time() - cpu);
    let calls = nodes::commands(&order.urls).await? - calls;
    let nodes = order.urls.len().max(1);
    let per_node_and_second = nodes as f64 * held.as_secs_f64();

    let invalid = guards.iter().filter(|guard| !guard.is_valid()).count();
    let losses = guards.iter().filter_map(|it| it.lost().now_or_never());
    let losses: Vec<_> = losses.map(|reason| format!("{reason:?}")).collect();

    let dropped = guards.split_off(guards.len() / 2);
    let start = Instant::now();
    release_all(guards).await?;
    let release_half = start.elapsed();
    let start = Instant::now();
    drop(dropped);
    let drop_half = start.elapsed();
    let report = redlock.shutdown(None).await;
    let deliver_half = start.elapsed();

    let count = order.guards as f64;
    let per_second = |count: f64, time: Duration| table::rate(count / time.as_secs_f64());
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let core_share = cpu.as_secs_f64() / held.as_secs_f64();
    let bytes = full.saturating_sub(empty) as f64;
    let extensions = calls.pexpires / (nodes as f64 * count);
    let mut table = table::new(["what", "redlock-tokio"]);
    let mut add = |what: &str, figure: String| {
        table.add_row([what, &figure]);
    };
    add("lost", losses.len().to_string());
    add("not valid at the end", invalid.to_string());
    add(
        "processor time, share of one core",
        table::percent(core_share),
    );
    add(
        "resident memory per guard",
        format!("{:.0} B", bytes / count),
    );
    add("extensions of each", format!("{extensions:.1}"));
    let scripts = table::whole(calls.scripts / per_node_and_second);
    add("script calls per second and node", scripts);
    let commands = table::whole(calls.all / per_node_and_second);
    add("commands per second and node, in scripts too", commands);
    add("acquire all", seconds(acquire));
    add("acquire, per second", per_second(count, acquire));
    let released = per_second(count / 2.0, release_half);
    add("release and wait, per second", released);
    add("drop half of them", seconds(drop_half));
    add("until those are delivered", seconds(deliver_half));
    add("releases abandoned", report.abandoned.to_string());
    let left = nodes::keys(&order.urls).await?;
    add("keys left behind", left.to_string());
    let mut text = format!(
        "## {count} guards held for {:.0} s, ttl {} s, five nodes\n\n{table}\n",
        held.as_secs_f64(),
        TTL.as_secs()
    );
    if let Some(reason) = losses.first() {
        text += &format!("- the first loss: {reason}\n");
    }
    Ok(text)
}

/// Acquires so many locks, some of them at the same time.
async fn acquire_all(redlock: &Redlock, count: usize) -> Result<Vec<LockGuard>> {
    let locks = (0..count).map(|number| redlock.lock(format!("held:{number}")));
    let guards = stream::iter(locks.map(|it| tokio::spawn(it.into_future())));
    let guards = guards.buffer_unordered(TASKS).map(|it| Ok(it??));
    guards.try_collect().await
}

/// Releases all. How that ended shows in what is left behind.
async fn release_all(guards: Vec<LockGuard>) -> Result<()> {
    let releases = guards.into_iter().map(|it| tokio::spawn(it.release()));
    let releases = stream::iter(releases).buffer_unordered(TASKS);
    releases.map_ok(drop).try_collect::<()>().await?;
    Ok(())
}
