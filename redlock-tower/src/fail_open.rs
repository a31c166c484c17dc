use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::mutex::Mutex;

/// How long the warning is not repeated.
const PAUSE: Duration = Duration::from_secs(10);

/// Warns about calls that run without a lock, however many there are: once in a while for each layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailOpen(Arc<Mutex<Warnings>>);

#[derive(Debug, Default)]
struct Warnings {
    last: Option<Instant>,
    withheld: u64,
}

impl FailOpen {
    /// Logs that a call runs without a lock, and why.
    pub(crate) fn warn(&self, label: &'static str, error: &dyn fmt::Display) {
        if let Some(withheld) = self.withheld_if_due() {
            tracing::warn!(
                target: "redlock",
                label,
                %error,
                withheld,
                "no lock is available: the call runs without a lock (fail_open)"
            );
        }
    }

    /// Returns how many warnings were withheld since the last one, if another is due.
    fn withheld_if_due(&self) -> Option<u64> {
        let now = Instant::now();
        let mut warnings = self.0.lock();
        let is_due = warnings.last.is_none_or(|last| now - last >= PAUSE);
        if is_due {
            warnings.last = Some(now);
            Some(std::mem::take(&mut warnings.withheld))
        } else {
            warnings.withheld += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_services_of_a_layer_warn_once_in_ten_seconds_and_count_the_rest() {
        let one = FailOpen::default();
        let clone = one.clone();
        assert_eq!(one.withheld_if_due(), Some(0));
        for it in [&clone, &one, &clone] {
            assert_eq!(it.withheld_if_due(), None);
        }
        tokio::time::advance(PAUSE).await;
        assert_eq!(one.withheld_if_due(), Some(3));
    }
}
