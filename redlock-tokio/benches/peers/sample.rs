use std::{fmt, time::Duration};

use crate::{
    Result,
    times::{Summary, Times},
};

/// What came out of a measurement.
pub(crate) struct Sample {
    pub(crate) acquire: Times,
    pub(crate) release: Times,
    pub(crate) time: Duration,
    pub(crate) failures: u64,
    pub(crate) first_failure: Option<String>,
}

impl Sample {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            acquire: Times::new()?,
            release: Times::new()?,
            time: Duration::ZERO,
            failures: 0,
            first_failure: None,
        })
    }

    pub(crate) fn record(&mut self, acquire: Duration, release: Duration) {
        self.acquire.record(acquire);
        self.release.record(release);
    }

    pub(crate) fn fail(&mut self, reason: impl fmt::Display) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| reason.to_string());
    }

    /// Adds what another task did meanwhile. The time stays.
    pub(crate) fn add_concurrent(&mut self, other: &Self) -> Result<()> {
        self.acquire.add(&other.acquire)?;
        self.release.add(&other.release)?;
        self.failures += other.failures;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        Ok(())
    }

    /// Adds what the same tasks did later.
    pub(crate) fn add_later(&mut self, other: &Self) -> Result<()> {
        self.time += other.time;
        self.add_concurrent(other)
    }

    pub(crate) fn cycles_per_second(&self) -> f64 {
        self.acquire.count() as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn outcome(self) -> Outcome {
        Outcome {
            cycles_per_s: self.cycles_per_second(),
            acquire: self.acquire.summary(),
            release: self.release.summary(),
            failures: self.failures,
            first_failure: self.first_failure,
        }
    }
}

/// What is told of a measurement, whatever it was of.
pub(crate) struct Outcome {
    pub(crate) cycles_per_s: f64,
    pub(crate) acquire: Summary,
    pub(crate) release: Summary,
    pub(crate) failures: u64,
    first_failure: Option<String>,
}

impl Outcome {
    /// Tells of failures below a table, if there were any.
    pub(crate) fn write_failures(&self, f: &mut fmt::Formatter<'_>, who: &str) -> fmt::Result {
        match &self.first_failure {
            Some(first) => writeln!(f, "- {who}: {} failures, the first: {first}", self.failures),
            None => Ok(()),
        }
    }
}
