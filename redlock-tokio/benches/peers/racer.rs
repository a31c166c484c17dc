use futures::{FutureExt, future::BoxFuture};

use crate::{
    Result,
    contestant::Contestant,
    load::{self, Load},
    sample::{Outcome, Sample},
};

/// A contestant of any type, so that different ones can take turns. The dynamic call runs a whole measurement,
/// so the cycles do not pay for it.
pub(crate) trait Racer: Send + Sync {
    /// The contestant's name in tables.
    fn name(&self) -> &'static str;

    /// Runs the load once.
    fn run<'a>(&'a self, load: &'a Load) -> BoxFuture<'a, Result<Sample>>;
}

impl<C: Contestant> Racer for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn run<'a>(&'a self, load: &'a Load) -> BoxFuture<'a, Result<Sample>> {
        load::run(self, load).boxed()
    }
}

/// The outcome of a race for one contestant.
pub(crate) struct Entry {
    pub(crate) tasks: usize,
    pub(crate) contestant: &'static str,
    /// The cycles per second of each round.
    pub(crate) rounds: Vec<f64>,
    pub(crate) outcome: Outcome,
}

/// Lets contestants run a load in turns, so many times.
pub(crate) async fn race(
    racers: &[Box<dyn Racer>],
    load: &Load,
    rounds: usize,
) -> Result<Vec<Entry>> {
    let mut samples: Vec<(Vec<f64>, Sample)> = Vec::new();
    for _ in racers {
        samples.push((Vec::new(), Sample::new()?));
    }
    for round in 0..rounds {
        for place in 0..racers.len() {
            // Nobody always comes after the same one.
            let index = (place + round) % racers.len();
            let sample = racers[index].run(load).await?;
            samples[index].0.push(sample.cycles_per_second());
            samples[index].1.add_later(&sample)?;
        }
    }
    let entries = racers.iter().zip(samples);
    Ok(entries
        .map(|(racer, (rounds, sample))| Entry {
            tasks: load.tasks,
            contestant: racer.name(),
            rounds,
            outcome: sample.outcome(),
        })
        .collect())
}
