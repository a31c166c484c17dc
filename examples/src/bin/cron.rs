//! A job that every host of a fleet starts at the same moment, and that only one of them runs.
//!
//! Each host asks for the run of each moment. One of them runs the job, and the others are told that it runs elsewhere,
//! even those whose clocks are late by more than the job takes.
//!
//! ```sh
//! cargo run -p redlock-examples --features cron --bin cron -- --every 1s --runs 3
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use redlock_examples::millis;
use redlock_tokio::{LockOptions, OnceOutcome, Redlock};
use tokio::{task::JoinSet, time::sleep};

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
            options: options.clone(),
            redlock: redlock.clone(),
        };
        runners.spawn(async move { runner.run().await });
    }
    while let Some(outcome) = runners.join_next().await {
        outcome??;
    }
    redlock.shutdown(None).await;
    Ok(())
}

struct Runner {
    number: u32,
    options: Options,
    redlock: Redlock,
}

impl Runner {
    async fn run(&self) -> Result<()> {
        let mut slot = self.slot()? + 1;
        for _ in 0..self.options.runs {
            let begin = self.wait_for(slot).await?;
            self.run_or_skip(slot, begin).await;
            // A runner skips the intervals that pass during its own job.
            slot = self.slot()?.max(slot) + 1;
        }
        Ok(())
    }

    /// Runs the job if this runner is the one.
    ///
    /// The others learn within a tenth of the interval that it runs elsewhere.
    async fn run_or_skip(&self, slot: u64, begin: Duration) {
        let name = format!("slot {slot}, runner {}", self.number);
        let options = LockOptions::new()
            .wait(self.options.every / 10)
            .retry_delay(Duration::from_millis(1), Duration::from_millis(10));
        let run = self.redlock.once("report", UNIX_EPOCH + begin);
        let outcome = run.options(options).run(async |_hold| {
            println!("{name}: runs");
            report().await;
        });
        match outcome.await {
            Ok(OnceOutcome::Ran(())) => {}
            Ok(OnceOutcome::RunElsewhere(_)) => println!("{name}: skips, another runner has it"),
            Ok(OnceOutcome::Missed { late }) => println!("{name}: skips, {late:.1?} too late"),
            // No report is better than two.
            Err(error) => println!("{name}: skips, {error}"),
        }
    }

    /// Waits until the interval begins by the runner's clock, and returns when that is.
    async fn wait_for(&self, slot: u64) -> Result<Duration> {
        let begin = Duration::from_millis(millis(self.options.every).saturating_mul(slot));
        sleep(begin.saturating_sub(self.now()?)).await;
        Ok(begin)
    }

    /// Returns the number of the current interval, by the runner's clock.
    fn slot(&self) -> Result<u64> {
        Ok(millis(self.now()?) / millis(self.options.every))
    }

    fn now(&self) -> Result<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.context("the clock is before 1970")?;
        Ok(now.saturating_sub(self.options.late * (self.number - 1)))
    }
}

/// Runs the job. The job is far shorter than the clocks differ, so with a lock that is released after it, a late host would
/// run the job again.
async fn report() {
    sleep(Duration::from_millis(5)).await;
}
