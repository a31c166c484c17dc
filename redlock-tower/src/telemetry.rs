//! Spans of `tracing`, and metrics behind the feature `metrics`.

use std::{sync::Arc, time::Instant};

use redlock_tokio::LossReason;
use tracing::Span;

/// The label of a layer, which its logs and metrics carry as the attribute `policy`.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    label: Arc<str>,
}

impl Telemetry {
    pub(crate) fn new(label: &str) -> Self {
        Self {
            label: label.into(),
        }
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn wait_timer(&self) -> WaitTimer {
        metric::waiting(&self.label, 1.0);
        WaitTimer {
            label: Arc::clone(&self.label),
            since: Instant::now(),
            result: "cancelled",
            span: tracing::debug_span!("lock_wait", policy = &*self.label),
        }
    }

    pub(crate) fn hold_timer(&self) -> HoldTimer {
        HoldTimer {
            label: Arc::clone(&self.label),
            since: Instant::now(),
        }
    }
}

/// Measures how long a call waits. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct WaitTimer {
    label: Arc<str>,
    since: Instant,
    result: &'static str,
    span: Span,
}

impl WaitTimer {
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Ends the wait with a result. Without one, the caller went away.
    pub(crate) fn end(mut self, result: &'static str) {
        self.result = result;
    }
}

impl Drop for WaitTimer {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        // Contention is normal, so this is no warning.
        tracing::debug!(
            parent: &self.span,
            policy = &*self.label, result = self.result, ?waited, "waited for a lock"
        );
        metric::waiting(&self.label, -1.0);
        metric::waited(&self.label, self.result, waited);
    }
}

/// Measures how long a call holds its lock. Dropping it ends the hold.
#[derive(Debug)]
pub(crate) struct HoldTimer {
    label: Arc<str>,
    since: Instant,
}

impl HoldTimer {
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!("lock_held", policy = &*self.label)
    }

    pub(crate) fn note_loss(&self, reason: LossReason) {
        tracing::warn!(
            policy = &*self.label,
            %reason,
            "the lock of a call was lost while it ran"
        );
        metric::lost(&self.label);
    }
}

impl Drop for HoldTimer {
    fn drop(&mut self) {
        metric::held(&self.label, self.since.elapsed());
    }
}

/// Named after OpenTelemetry's metrics for rate limiting in ASP.NET. No metric carries a key.
#[cfg(feature = "metrics")]
mod metric {
    use std::{sync::Arc, time::Duration};

    use metrics::{counter, gauge, histogram};

    pub(super) fn waiting(label: &Arc<str>, more: f64) {
        gauge!("redlock_queued_requests", "policy" => Arc::clone(label)).increment(more);
    }

    pub(super) fn waited(label: &Arc<str>, result: &'static str, waited: Duration) {
        counter!("redlock_requests_total", "policy" => Arc::clone(label), "result" => result)
            .increment(1);
        histogram!("redlock_time_in_queue_seconds", "policy" => Arc::clone(label), "result" => result)
            .record(waited);
    }

    pub(super) fn held(label: &Arc<str>, held: Duration) {
        histogram!("redlock_hold_duration_seconds", "policy" => Arc::clone(label)).record(held);
    }

    pub(super) fn lost(label: &Arc<str>) {
        counter!("redlock_locks_lost_total", "policy" => Arc::clone(label)).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod metric {
    use std::{sync::Arc, time::Duration};

    pub(super) fn waiting(_label: &Arc<str>, _more: f64) {}
    pub(super) fn waited(_label: &Arc<str>, _result: &'static str, _waited: Duration) {}
    pub(super) fn held(_label: &Arc<str>, _held: Duration) {}
    pub(super) fn lost(_label: &Arc<str>) {}
}
