//! Spans of `tracing`, and metrics behind the feature `metrics`.

use redlock_tokio::{Hold, LossReason};
use tokio::time::Instant;
use tracing::Span;

/// The label of a layer, which its logs and metrics carry as the attribute `label`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telemetry {
    pub(crate) label: &'static str,
}

impl Telemetry {
    pub(crate) fn wait_timer(self) -> WaitTimer {
        metric::waiting(self.label, 1.0);
        WaitTimer {
            label: self.label,
            since: Instant::now(),
            result: "cancelled",
            span: tracing::debug_span!(target: "redlock", "lock_wait", label = self.label),
        }
    }

    pub(crate) fn hold_timer(self) -> HoldTimer {
        HoldTimer {
            label: self.label,
            since: metric::now(),
        }
    }
}

/// Measures how long a call waits. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct WaitTimer {
    label: &'static str,
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
            target: "redlock",
            parent: &self.span,
            label = self.label,
            result = self.result,
            waited = ?self.since.elapsed(),
            "a call waited for a lock"
        );
        metric::waiting(self.label, -1.0);
        metric::waited(self.label, self.result, self.since);
    }
}

/// Measures how long a call holds its lock. Dropping it ends the hold.
#[derive(Debug)]
pub(crate) struct HoldTimer {
    label: &'static str,
    since: metric::Start,
}

impl HoldTimer {
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(target: "redlock", "lock_held", label = self.label)
    }

    pub(crate) fn note_loss(&self, hold: &Hold, reason: LossReason) {
        tracing::warn!(
            target: "redlock",
            label = self.label,
            token = %hold.token(),
            %reason,
            "a call lost its lock while it ran"
        );
        metric::lost(self.label);
    }
}

impl Drop for HoldTimer {
    fn drop(&mut self) {
        metric::held(self.label, self.since);
    }
}

/// Named after OpenTelemetry's metrics for rate limiting in ASP.NET. No metric carries a key.
#[cfg(feature = "metrics")]
mod metric {
    use metrics::{counter, gauge, histogram};
    use tokio::time::Instant;

    pub(super) type Start = Instant;

    pub(super) fn now() -> Start {
        Instant::now()
    }

    pub(super) fn waiting(label: &'static str, more: f64) {
        gauge!("redlock_queued_requests", "label" => label).increment(more);
    }

    pub(super) fn waited(label: &'static str, result: &'static str, since: Instant) {
        counter!("redlock_requests_total", "label" => label, "result" => result).increment(1);
        histogram!("redlock_time_in_queue_seconds", "label" => label, "result" => result)
            .record(since.elapsed());
    }

    pub(super) fn held(label: &'static str, since: Start) {
        histogram!("redlock_hold_duration_seconds", "label" => label).record(since.elapsed());
    }

    pub(super) fn lost(label: &'static str) {
        counter!("redlock_locks_lost_total", "label" => label).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod metric {
    use tokio::time::Instant;

    /// Reading the clock costs time, which nobody needs here.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Start;

    pub(super) fn now() -> Start {
        Start
    }

    pub(super) fn waiting(_label: &'static str, _more: f64) {}
    pub(super) fn waited(_label: &'static str, _result: &'static str, _since: Instant) {}
    pub(super) fn held(_label: &'static str, _since: Start) {}
    pub(super) fn lost(_label: &'static str) {}
}
