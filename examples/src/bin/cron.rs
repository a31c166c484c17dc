//! A job that every host of a fleet starts at the same moment, and that only one of them runs.
//!
//! The host that gets the lock runs the job. It holds the lock for at least half of the interval, however
//! short the job is. So a host whose clock is late finds the lock held, and skips the job.
//!
//! ```sh
//! cargo run -p redlock-examples --features cron --bin cron -- --every 1s --runs 3
//! ```

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use redlock_tokio::{LockError, LockOptions, Redlock};
use tokio::{
    task::JoinSet,
    time::{sleep, sleep_until},
};

const KEY: &str = "cron:report";

/// Runs a job at regular times, on one of the runners.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// The interval, counted from the start of 1970, so that all runners agree on the moments.
    #[arg(long, default_value = "1s", value_parser = redlock_examples::duration)]
    every: Duration,
    /// How many intervals to take part in, whether the job is run or skipped.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// How many runners this process has.
    #[arg(long, default_value_t = 3)]
    runners: u32,
    /// How late each runner's clock is, compared to that of the runner before.
    #[arg(long, default_value = "50ms", value_parser = redlock_examples::duration)]
    late: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    ensure!(
        options.every >= Duration::from_millis(10),
        "--every is at least 10ms"
    );
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock cron, on {nodes}");

    let mut runners = JoinSet::new();
    for number in 1..=options.runners {
        let runner = Runner {
            number,
            late: options.late * (number - 1),
            every: options.every,
            redlock: redlock.clone(),
        };
        runners.spawn(async move { runner.run(options.runs).await });
    }
    while let Some(outcome) = runners.join_next().await {
        outcome??;
    }
    redlock.shutdown().await;
    Ok(())
}

struct Runner {
    number: u32,
    late: Duration,
    every: Duration,
    redlock: Redlock,
}

impl Runner {
    async fn run(&self, times: u32) -> Result<()> {
        let mut slot = self.slot()? + 1;
        for _ in 0..times {
            self.wait_for(slot).await?;
            self.run_or_skip(slot).await;
            // A runner skips the intervals that pass during its own job.
            slot = self.slot()?.max(slot) + 1;
        }
        Ok(())
    }

    /// Runs the job if this runner gets the lock.
    ///
    /// All runners try at the same moment. With `try_lock`, each of them might get a minority of the nodes, and
    /// none the lock. So they wait for a tenth of the interval. The winner holds the lock for half of the
    /// interval, so that the wait of a late runner is over before the release.
    async fn run_or_skip(&self, slot: u64) {
        let options = LockOptions::new()
            .wait(self.every / 10)
            .retry_delay(Duration::from_millis(1), Duration::from_millis(10))
            .max_hold(Duration::from_secs(3600)); // only a run that hangs takes longer
        let name = format!("slot {slot}, runner {}", self.number);
        match self.redlock.lock(KEY).options(options).await {
            Ok(guard) => {
                let begun = Instant::now();
                println!("{name}: runs");
                report().await;
                sleep_until((begun + self.every / 2).into()).await; // the minimum hold
                guard.release().await;
            }
            Err(LockError::Contended(_)) => println!("{name}: skips, another runner has it"),
            // No report is better than two. A job that may run twice could run here.
            Err(error) => println!("{name}: skips, {error}"),
        }
    }

    async fn wait_for(&self, slot: u64) -> Result<()> {
        let begin = u64::try_from(self.every.as_millis())?.saturating_mul(slot);
        let left = Duration::from_millis(begin).saturating_sub(self.now()?);
        sleep(left).await;
        Ok(())
    }

    /// Returns the number of the current interval, by the runner's clock.
    fn slot(&self) -> Result<u64> {
        Ok(u64::try_from(
            self.now()?.as_millis() / self.every.as_millis(),
        )?)
    }

    fn now(&self) -> Result<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(now
            .context("the clock is before 1970")?
            .saturating_sub(self.late))
    }
}

/// Runs the job. The job is far shorter than the interval, so without a minimum hold a late host would find the
/// lock free and run the job again.
async fn report() {
    sleep(Duration::from_millis(5)).await;
}
