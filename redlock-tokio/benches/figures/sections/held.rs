use std::{
    fs,
    time::{Duration, Instant},
};

use comfy_table::Table;
use futures::{StreamExt, TryStreamExt, stream};
use redlock_tokio::{Durability, LockGuard, Redlock};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

use super::Bench;
use crate::{
    Result,
    bed::{Bed, NODES},
    nodes, table,
};

const GUARDS: usize = 100_000;
const TTL: Duration = Duration::from_secs(10);
const HELD_FOR: Duration = Duration::from_secs(30);

/// As many tasks acquire and release at the same time.
const TASKS: usize = 256;

/// What it costs to hold many locks. Fails if one is lost.
pub(super) fn measure(_bench: &mut Bench) -> Result<()> {
    let bed = Bed::near()?;
    let table = bed.runtime.block_on(hold(&bed))?;
    println!("## {GUARDS} guards held for {HELD_FOR:?}, ttl {TTL:?}\n\n{table}\n");
    Ok(())
}

async fn hold(bed: &Bed) -> Result<Table> {
    let builder = Redlock::builder().nodes(&bed.urls).ttl(TTL);
    let builder = builder.durability(Durability::AssumedForTests);
    let builder = builder.max_hold(Duration::from_secs(3600));
    let redlock = builder.wait(Duration::from_secs(20)).build().await?;
    // The process has its buffers and threads before it is weighed.
    acquire_all(&redlock, 1024).await?.clear();
    sleep(Duration::from_millis(200)).await;
    let empty = resident_bytes()?;

    let start = Instant::now();
    let mut guards = acquire_all(&redlock, GUARDS).await?;
    let acquire = start.elapsed();
    let bytes = resident_bytes()?.saturating_sub(empty);

    // From here on what is measured begins and ends between two extensions of all.
    sleep(TTL / 6).await;
    let (before, cpu) = (nodes::commands(&bed.urls).await?, cpu_time());
    sleep(HELD_FOR).await;
    let cpu = cpu_time() - cpu;
    let commands = nodes::commands(&bed.urls).await? - before;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();

    let dropped = guards.split_off(GUARDS / 2);
    let start = Instant::now();
    let releases = guards.into_iter().map(|it| tokio::spawn(it.release()));
    let releases = stream::iter(releases).buffer_unordered(TASKS);
    releases.map_ok(drop).try_collect::<()>().await?;
    let release = start.elapsed();
    let start = Instant::now();
    drop(dropped);
    let abandoned = redlock.shutdown(None).await.abandoned;
    let delivered = start.elapsed();
    if lost + abandoned > 0 {
        return Err(format!("{lost} guards were lost, {abandoned} releases abandoned").into());
    }

    let per_second = |count, time: Duration| table::whole(count as f64 / time.as_secs_f64());
    let commands = commands.all / NODES as f64 / HELD_FOR.as_secs_f64();
    let mut table = table::new(["what", "redlock-tokio"]);
    for (what, figure) in [
        (
            "processor time, share of one core",
            table::percent(cpu.as_secs_f64() / HELD_FOR.as_secs_f64()),
        ),
        (
            "resident memory per guard",
            format!("{} B", bytes / GUARDS as u64),
        ),
        (
            "commands per second and node, in scripts too",
            table::whole(commands),
        ),
        ("acquire, per second", per_second(GUARDS, acquire)),
        (
            "release and wait, per second",
            per_second(GUARDS / 2, release),
        ),
        (
            "drop and deliver, per second",
            per_second(GUARDS / 2, delivered),
        ),
    ] {
        table.add_row([what, &figure]);
    }
    Ok(table)
}

/// Acquires so many locks, some of them at the same time.
async fn acquire_all(redlock: &Redlock, count: usize) -> Result<Vec<LockGuard>> {
    let locks = (0..count).map(|number| redlock.lock(format!("held:{number}")));
    let guards = stream::iter(locks.map(|it| tokio::spawn(it.into_future())));
    let guards = guards.buffer_unordered(TASKS).map(|it| Ok(it??));
    guards.try_collect().await
}

/// Returns the processor time of all threads of this process. The servers are processes of their own.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// Returns the resident memory of this process.
fn resident_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes.ok_or("no VmRSS in /proc/self/status")?.parse()?;
    Ok(kilobytes * 1024)
}
