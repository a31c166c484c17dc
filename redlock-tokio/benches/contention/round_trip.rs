use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{Result, contestants::Plain, table, times::Times};

/// How often each node is asked, each time over a new connection.
const BATCHES: usize = 6;
const PINGS: usize = 100;

/// Long enough for the system to place its threads anew.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a `PING` takes on a connection of the redis crate, which all contestants use.
///
/// Depends on whether the system lets client and server share a core: a batch takes one time or
/// three times as long, and the next one is different. Hence many of them, and their range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// The median of the batches' medians.
    pub(crate) us: f64,
    fastest_batch_us: f64,
    slowest_batch_us: f64,
}

impl RoundTrip {
    pub(crate) async fn measure(urls: Vec<String>) -> Result<Self> {
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            for url in &urls {
                let client = Plain::connect(std::slice::from_ref(url)).await?;
                let mut times = Times::new()?;
                for _ in 0..PINGS {
                    let start = Instant::now();
                    client.ping().await?;
                    times.record(start.elapsed());
                }
                batches.push(times.summary().p50_us);
                tokio::time::sleep(PAUSE).await;
            }
        }
        batches.sort_by(f64::total_cmp);
        let at = |index: usize| batches.get(index).copied().unwrap_or(f64::NAN);
        Ok(Self {
            us: at(batches.len() / 2),
            fastest_batch_us: at(0),
            slowest_batch_us: at(batches.len().saturating_sub(1)),
        })
    }
}

impl fmt::Display for RoundTrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (batches from {} to {})",
            table::time(self.us),
            table::time(self.fastest_batch_us),
            table::time(self.slowest_batch_us)
        )
    }
}
