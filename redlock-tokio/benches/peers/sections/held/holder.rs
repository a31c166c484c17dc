use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::FutureExt;
use redlock_tokio::{Durability, LockGuard, MemoryNode, Redlock};
use tokio::task::JoinSet;

use super::{
    Held, Order,
    process::{cpu_time, resident_bytes},
};
use crate::{Result, nodes};

const TTL: Duration = Duration::from_secs(30);

/// As many tasks acquire and release at the same time.
const TASKS: usize = 256;

/// How long everything but the holding may take, and how much longer for each guard.
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_PER_GUARD: Duration = Duration::from_micros(500);

/// Holds what it is told to, and tells what that cost. Runs in a process of its own.
pub(crate) async fn hold(order: &str) -> Result<String> {
    let order: Order = serde_json::from_str(order)?;
    let guards = u32::try_from(order.guards)?;
    let limit = LIMIT + LIMIT_PER_GUARD * guards + Duration::from_secs(order.seconds);
    let held = tokio::time::timeout(limit, carry_out(&order))
        .await
        .map_err(|_| format!("the holder was not done within {limit:?}"))??;
    Ok(serde_json::to_string(&held)?)
}

async fn carry_out(order: &Order) -> Result<Held> {
    let builder = Redlock::builder()
        .durability(Durability::AssumedForTests)
        .ttl(TTL)
        .max_hold(Duration::from_secs(3600))
        .wait(Duration::from_secs(20));
    let redlock = if order.urls.is_empty() {
        let nodes = (0..5).map(|_| MemoryNode::new());
        builder.custom_nodes(nodes).build().await?
    } else {
        builder.nodes(&order.urls).build().await?
    };
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
    let report = redlock.shutdown().await;
    let deliver_half = start.elapsed();

    Ok(Held {
        guards: order.guards,
        ttl_s: TTL.as_secs(),
        held_s: held.as_secs_f64(),
        acquire_s: acquire.as_secs_f64(),
        invalid,
        lost: losses.len(),
        first_loss: losses.into_iter().next(),
        core_share: cpu.as_secs_f64() / held.as_secs_f64(),
        bytes_per_guard: full.saturating_sub(empty) as f64 / order.guards as f64,
        extensions: calls.pexpires / (nodes * order.guards) as f64,
        script_calls_per_s: calls.scripts / per_node_and_second,
        commands_per_s: calls.all / per_node_and_second,
        release_half_s: release_half.as_secs_f64(),
        drop_half_s: drop_half.as_secs_f64(),
        deliver_half_s: deliver_half.as_secs_f64(),
        abandoned: report.abandoned,
        left_behind: nodes::keys(&order.urls).await?,
    })
}

async fn acquire_all(redlock: &Redlock, count: usize) -> Result<Vec<LockGuard>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks: JoinSet<Result<Vec<LockGuard>>> = JoinSet::new();
    for _ in 0..TASKS {
        let (redlock, next) = (redlock.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let mut guards = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(guards);
                }
                guards.push(redlock.lock(format!("held:{number}")).await?);
            }
        });
    }
    let mut guards = Vec::with_capacity(count);
    while let Some(some) = tasks.join_next().await {
        guards.append(&mut some??);
    }
    Ok(guards)
}

async fn release_all(mut guards: Vec<LockGuard>) -> Result<()> {
    let share = guards.len().div_ceil(TASKS).max(1);
    let mut tasks = JoinSet::new();
    while !guards.is_empty() {
        let some = guards.split_off(guards.len().saturating_sub(share));
        tasks.spawn(async move {
            for guard in some {
                // How it ended shows in what is left behind.
                guard.release().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?;
    }
    Ok(())
}
