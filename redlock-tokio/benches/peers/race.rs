use std::{
    fmt,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use tokio::{join, sync::watch, time::sleep};

use crate::{
    Result,
    shared::{
        contestants::Contestant,
        history::time,
        load::{self, Load},
        times::{Summary, Times},
    },
};

/// How long the last cycles may take beyond the time of the load until they are cut off. No healthy one takes as long.
const GRACE: Duration = Duration::from_secs(8);

/// What came out of some measurements.
#[derive(Default)]
pub(crate) struct Sample {
    acquire: Times,
    release: Times,
    cycles: usize,
    time: Duration,
    pub(crate) failures: u64,
    pub(crate) first_failure: Option<String>,
}

/// A contestant of any type, so that different ones can take turns. The dynamic call runs a whole measurement,
/// so the cycles do not pay for it.
pub(crate) trait Racer: Send + Sync {
    /// The contestant's name in tables.
    fn name(&self) -> &'static str;

    /// Runs tasks for this time, each with a key of its own, and adds the outcome to a sample. Returns the cycles per
    /// second.
    fn run<'a>(
        &'a self,
        tasks: usize,
        time: Duration,
        sample: &'a mut Sample,
    ) -> BoxFuture<'a, Result<f64>>;
}

/// The outcome of a race for one contestant.
pub(crate) struct Entry {
    pub(crate) tasks: usize,
    pub(crate) contestant: &'static str,
    /// The cycles per second of each round.
    pub(crate) rounds: Vec<f64>,
    pub(crate) sample: Sample,
}

impl<C: Contestant> Racer for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn run<'a>(
        &'a self,
        tasks: usize,
        time: Duration,
        sample: &'a mut Sample,
    ) -> BoxFuture<'a, Result<f64>> {
        sample.run(self, tasks, time).boxed()
    }
}

impl Sample {
    async fn run<C: Contestant>(
        &mut self,
        contestant: &C,
        tasks: usize,
        length: Duration,
    ) -> Result<f64> {
        let load = Load {
            tasks,
            hold: Duration::ZERO,
            spins: true,
            grace: GRACE,
        };
        let (stop, stopped) = watch::channel(false);
        let start = Instant::now();
        let key = |task| format!("own:{}:{task}", C::NAME);
        let (histories, ()) = join!(load::run(contestant, load, key, &stopped), async {
            sleep(length).await;
            stop.send_replace(true);
        });
        let took = start.elapsed();
        let mut cycles = 0;
        for history in histories? {
            cycles += history.holds.len();
            for hold in &history.holds {
                self.acquire.record(time(hold.asked..hold.entered));
                self.release.record(time(hold.left..hold.released));
            }
            self.failures += history.failures + u64::from(history.waiting_since.is_some());
            let cut_off = history
                .waiting_since
                .map(|_| "cut off, since it took too long".into());
            self.first_failure = self
                .first_failure
                .take()
                .or(history.first_failure)
                .or(cut_off);
        }
        self.cycles += cycles;
        self.time += took;
        Ok(cycles as f64 / took.as_secs_f64())
    }

    pub(crate) fn cycles_per_s(&self) -> f64 {
        self.cycles as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn acquire(&self) -> Summary {
        self.acquire.summary()
    }

    pub(crate) fn release(&self) -> Summary {
        self.release.summary()
    }

    /// Tells of failures below a table, if there were any.
    pub(crate) fn write_failures(&self, f: &mut fmt::Formatter<'_>, who: &str) -> fmt::Result {
        match &self.first_failure {
            Some(first) => writeln!(f, "- {who}: {} failures, the first: {first}", self.failures),
            None => Ok(()),
        }
    }
}

/// Lets contestants run a load in turns, so many times.
pub(crate) async fn race(
    racers: &[Box<dyn Racer>],
    tasks: usize,
    time: Duration,
    rounds: usize,
) -> Result<Vec<Entry>> {
    let entries = racers.iter().map(|racer| Entry {
        tasks,
        contestant: racer.name(),
        rounds: Vec::new(),
        sample: Sample::default(),
    });
    let mut entries: Vec<_> = entries.collect();
    for round in 0..rounds {
        for place in 0..racers.len() {
            // No contestant always comes after the same one.
            let index = (place + round) % racers.len();
            let entry = &mut entries[index];
            let cycles = racers[index].run(tasks, time, &mut entry.sample).await?;
            entry.rounds.push(cycles);
        }
    }
    Ok(entries)
}
