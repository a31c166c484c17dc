use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::{Result, contestant::Contestant, sample::Sample};

/// How long the last cycles may take beyond the time of the load until they are cut off. No healthy one takes as long.
const GRACE: Duration = Duration::from_secs(8);

/// A measurement: some tasks acquire and release, each with a key of its own.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    /// No cycle starts later than this.
    pub(crate) time: Duration,
}

impl Load {
    pub(crate) const fn new(tasks: usize, time: Duration) -> Self {
        Self { tasks, time }
    }
}

/// Runs the load once with a contestant.
pub(crate) async fn run<C: Contestant>(contestant: &C, load: &Load) -> Result<Sample> {
    let start = Instant::now();
    let end = start + load.time;
    let mut tasks: JoinSet<Result<Sample>> = JoinSet::new();
    for task in 0..load.tasks {
        let contestant = contestant.clone();
        let cut_off = tokio::time::Instant::from_std(end + GRACE);
        tasks.spawn(async move {
            let mut sample = Sample::new()?;
            let key = format!("own:{}:{task}", C::NAME);
            let cycles = cycle(&contestant, &key, end, &mut sample);
            if tokio::time::timeout_at(cut_off, cycles).await.is_err() {
                sample.fail("cut off, since it took too long");
            }
            Ok(sample)
        });
    }
    let mut total = Sample::new()?;
    while let Some(sample) = tasks.join_next().await {
        total.add_concurrent(&sample??)?;
    }
    total.time = start.elapsed();
    Ok(total)
}

async fn cycle<C: Contestant>(contestant: &C, key: &str, end: Instant, sample: &mut Sample) {
    loop {
        let asked = Instant::now();
        if asked >= end {
            return;
        }
        let held = match contestant.acquire(key).await {
            Ok(held) => held,
            Err(error) => {
                sample.fail(format_args!("acquire after {:?}: {error}", asked.elapsed()));
                continue;
            }
        };
        let acquired = Instant::now();
        if let Err(error) = contestant.release(key, held).await {
            sample.fail(format_args!("release: {error}"));
        }
        sample.record(acquired - asked, acquired.elapsed());
    }
}
