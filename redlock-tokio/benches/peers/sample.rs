use std::{fmt, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Result;

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

    /// An error if anything failed, for where nothing may.
    pub(crate) fn flawless(self, who: &str) -> Result<Self> {
        match &self.first_failure {
            None => Ok(self),
            Some(first) => {
                Err(format!("{who}: {} failures, the first: {first}", self.failures).into())
            }
        }
    }
}

/// How long something took, many times.
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// In nanoseconds, to one percent, which is less than one run differs from the next.
    const DIGITS: u8 = 2;
    const LONGEST: Duration = Duration::from_secs(100);

    pub(crate) fn new() -> Result<Self> {
        let longest = u64::try_from(Self::LONGEST.as_nanos())?;
        Ok(Self(Histogram::new_with_max(longest, Self::DIGITS)?))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.0
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn summary(&self) -> Summary {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Summary {
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

/// The quantiles that are told, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}
