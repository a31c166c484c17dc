use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Result;

/// The durations of something that happened many times.
pub(crate) struct Times(Histogram<u64>);

/// In microseconds, as figures are told.
pub(crate) fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}
