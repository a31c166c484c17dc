use std::time::Duration;

use hdrhistogram::Histogram;

/// The durations of something that happened many times.
pub(crate) struct Times(Histogram<u64>);

/// The quantiles that are told, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

/// In microseconds, as figures are told.
pub(crate) fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Times {
    /// To one percent, which is less than one run differs from the next.
    const DIGITS: u8 = 2;

    /// In nanoseconds: a hundred seconds.
    const LONGEST: u64 = 100_000_000_000;

    pub(crate) fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
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

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(Self::LONGEST, Self::DIGITS);
        Self(histogram.expect("the limits are in order"))
    }
}
