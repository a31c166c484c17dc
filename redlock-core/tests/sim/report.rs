//! The summary: what was simulated, what went wrong on purpose, and what was found.

use std::time::Duration;

use crate::{
    clock::{HOUR, SECOND},
    configuration::{Configuration, Expectation},
    seen::{Seen, Tally},
    world::Outcome,
};

/// The runs of one configuration, added up.
pub(crate) struct Summary {
    pub(crate) configuration: Configuration,
    pub(crate) seeds: u64,
    /// Both runs of each seed count: both were simulated.
    virtual_time: u64,
    events: u64,
    leases: u64,
    pub(crate) seen: Tally,
    pub(crate) violations: u64,
    pub(crate) example: Option<String>,
    real_time: Duration,
}

impl Summary {
    pub(crate) fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            seeds: 0,
            virtual_time: 0,
            events: 0,
            leases: 0,
            seen: Tally::new(),
            violations: 0,
            example: None,
            real_time: Duration::ZERO,
        }
    }

    pub(crate) fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.virtual_time += 2 * outcome.virtual_time;
        self.events += 2 * outcome.events;
        self.leases += outcome.leases;
        self.seen += &outcome.seen;
        self.violations += outcome.explained;
        if let Some(example) = &outcome.example
            && self.example.is_none()
        {
            self.example = Some(format!("seed {seed} {example}"));
        }
    }

    pub(crate) fn finish(&mut self, real_time: Duration) {
        self.real_time = real_time;
    }

    /// Returns the virtual hours that one second of real time simulates.
    fn speed(&self) -> f64 {
        self.virtual_hours() / self.real_time.as_secs_f64().max(1e-9)
    }

    fn virtual_hours(&self) -> f64 {
        (self.virtual_time / SECOND) as f64 / (HOUR / SECOND) as f64
    }
}

pub(crate) fn print(summaries: &[Summary]) {
    println!(
        "\n{:<22} {:>6} {:>9} {:>10} {:>10} {:>13} {:>10} {:>8}",
        "configuration", "seeds", "virtual h", "leases", "acquired", "events", "violations", "h/s"
    );
    for it in summaries {
        println!(
            "{:<22} {:>6} {:>9.0} {:>10} {:>10} {:>13} {:>10} {:>8.2}",
            it.configuration.name,
            it.seeds,
            it.virtual_hours(),
            it.leases,
            it.seen.get(Seen::Acquired),
            it.events,
            it.violations,
            it.speed()
        );
    }
    let mut safe = Tally::new();
    let mut other = Tally::new();
    for it in summaries {
        match it.configuration.expectation {
            Expectation::Safe => safe += &it.seen,
            Expectation::Violated => other += &it.seen,
        }
    }
    for (title, range) in [
        ("faults injected", 0..Seen::FAULTS),
        ("situations reached", Seen::FAULTS..Seen::ALL.len()),
    ] {
        println!("\n{title:<52} {:>12} {:>18}", "within", "beyond, mutants");
        for &(what, name) in &Seen::ALL[range] {
            println!(
                "  {name:<50} {:>12} {:>18}",
                safe.get(what),
                other.get(what)
            );
        }
    }
    println!();
    for it in summaries {
        if let Some(example) = &it.example {
            let Configuration { name, about, .. } = it.configuration;
            println!("{name}: {about};\n  such as {example}");
        }
    }
}
