//! Spans of `tracing`, and metrics behind the feature `metrics`.

use std::sync::Arc;

use redlock_tokio::LossReason;
use tokio::time::Instant;
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
            since: metric::now(),
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

    /// Sets the result of the wait. A wait without a result was given up by its caller.
    pub(crate) fn end(&mut self, result: &'static str) {
        self.result = result;
    }
}

impl Drop for WaitTimer {
    fn drop(&mut self) {
        // Contention is normal, so this is no warning.
        tracing::debug!(
            parent: &self.span,
            policy = &*self.label,
            result = self.result,
            waited = ?self.since.elapsed(),
            "waited for a lock"
        );
        metric::waiting(&self.label, -1.0);
        metric::waited(&self.label, self.result, self.since);
    }
}

/// Measures how long a call holds its lock. Dropping it ends the hold.
#[derive(Debug)]
pub(crate) struct HoldTimer {
    label: Arc<str>,
    since: metric::Start,
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
        metric::held(&self.label, self.since);
    }
}

/// Named after OpenTelemetry's metrics for rate limiting in ASP.NET. No metric carries a key.
#[cfg(feature = "metrics")]
mod metric {
    use std::sync::Arc;

    use metrics::{counter, gauge, histogram};
    use tokio::time::Instant;

    pub(super) type Start = Instant;

    pub(super) fn now() -> Start {
        Instant::now()
    }

    pub(super) fn waiting(label: &Arc<str>, more: f64) {
        gauge!("redlock_queued_requests", "policy" => Arc::clone(label)).increment(more);
    }

    pub(super) fn waited(label: &Arc<str>, result: &'static str, since: Instant) {
        counter!("redlock_requests_total", "policy" => Arc::clone(label), "result" => result)
            .increment(1);
        histogram!("redlock_time_in_queue_seconds", "policy" => Arc::clone(label), "result" => result)
            .record(since.elapsed());
    }

    pub(super) fn held(label: &Arc<str>, since: Start) {
        histogram!("redlock_hold_duration_seconds", "policy" => Arc::clone(label))
            .record(since.elapsed());
    }

    pub(super) fn lost(label: &Arc<str>) {
        counter!("redlock_locks_lost_total", "policy" => Arc::clone(label)).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod metric {
    use std::sync::Arc;

    use tokio::time::Instant;

    /// Reading the clock costs time, which nobody needs here.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Start;

    pub(super) fn now() -> Start {
        Start
    }

    pub(super) fn waiting(_label: &Arc<str>, _more: f64) {}
    pub(super) fn waited(_label: &Arc<str>, _result: &'static str, _since: Instant) {}
    pub(super) fn held(_label: &Arc<str>, _since: Start) {}
    pub(super) fn lost(_label: &Arc<str>) {}
}
