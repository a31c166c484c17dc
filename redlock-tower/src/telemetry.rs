//! Spans of `tracing`, and metrics behind the feature `metrics`.

use redlock_tokio::{Hold, LossReason, ShownTime};
use tokio::time::Instant;
use tracing::Span;

pub(crate) use self::metric::describe;

/// The attributes of a call in metrics and logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telemetry {
    /// The label of the layer.
    pub(crate) label: &'static str,
    /// Metrics of readers and of writers are apart, since their waits and holds differ.
    pub(crate) share: Share,
}

/// How a call shares its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// The call has no key.
    None,
    Exclusive,
    Permit,
    Reader,
    Writer,
}

impl Share {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exclusive => "exclusive",
            Self::Permit => "permit",
            Self::Reader => "reader",
            Self::Writer => "writer",
        }
    }
}

impl Telemetry {
    /// Returns the attributes of calls without a key.
    pub(crate) const fn new(label: &'static str) -> Self {
        let share = Share::None;
        Self { label, share }
    }

    pub(crate) fn wait_timer(self) -> WaitTimer {
        metric::waiting(self, 1.0);
        WaitTimer {
            call: self,
            since: Instant::now(),
            result: "cancelled",
            span: tracing::debug_span!(
                target: "redlock",
                "lock_wait",
                label = self.label,
                share = self.share.name()
            ),
        }
    }
}

/// Measures how long a call waits. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct WaitTimer {
    call: Telemetry,
    since: Instant,
    result: &'static str,
    span: Span,
}

impl WaitTimer {
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Starts to measure the hold that this wait was for.
    pub(crate) fn hold_timer(&self) -> HoldTimer {
        HoldTimer {
            call: self.call,
            since: metric::now(),
        }
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
            label = self.call.label,
            result = self.result,
            waited = %ShownTime(self.since.elapsed()),
            "a call waited for a lock"
        );
        metric::waiting(self.call, -1.0);
        metric::waited(self.call, self.result, self.since);
    }
}

/// Measures how long a call holds its lock. Dropping it ends the hold.
#[derive(Debug)]
pub(crate) struct HoldTimer {
    call: Telemetry,
    since: metric::Start,
}

impl HoldTimer {
    pub(crate) fn span(&self) -> Span {
        let Telemetry { label, share } = self.call;
        tracing::debug_span!(target: "redlock", "lock_held", label, share = share.name())
    }

    pub(crate) fn note_loss(&self, hold: &Hold, reason: LossReason) {
        tracing::warn!(
            target: "redlock",
            label = self.call.label,
            token = %hold.token(),
            %reason,
            "a call lost its lock while it ran"
        );
        metric::lost(self.call);
    }
}

impl Drop for HoldTimer {
    fn drop(&mut self) {
        metric::held(self.call, self.since);
    }
}

/// Calls are counted as `redlock_layer_*`, with the words that `redlock-tokio` has for locks. No metric carries a key.
#[cfg(feature = "metrics")]
mod metric {
    use metrics::{
        Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    };
    use tokio::time::Instant;

    use super::Telemetry;

    pub(super) type Start = Instant;

    pub(super) fn now() -> Start {
        Instant::now()
    }

    /// Describes the metrics to the recorder that is installed by now.
    pub(crate) fn describe() {
        let seconds = Unit::Seconds;
        describe_counter!(
            "redlock_layer_requests_total",
            "Calls of a layer, by the result of their wait"
        );
        describe_gauge!(
            "redlock_layer_waiting_requests",
            "Calls that wait for their locks now"
        );
        describe_histogram!(
            "redlock_layer_wait_seconds",
            seconds,
            "How long calls waited"
        );
        describe_histogram!(
            "redlock_layer_hold_seconds",
            seconds,
            "How long calls held their locks"
        );
        describe_counter!(
            "redlock_layer_locks_lost_total",
            "Locks lost while a call ran"
        );
    }

    pub(super) fn waiting(call: Telemetry, more: f64) {
        gauge!("redlock_layer_waiting_requests", "label" => call.label, "share" => call.share.name())
            .increment(more);
    }

    pub(super) fn waited(call: Telemetry, result: &'static str, since: Instant) {
        counter!("redlock_layer_requests_total", "label" => call.label, "result" => result, "share" => call.share.name()).increment(1);
        histogram!("redlock_layer_wait_seconds", "label" => call.label, "result" => result, "share" => call.share.name())
            .record(since.elapsed());
    }

    pub(super) fn held(call: Telemetry, since: Start) {
        histogram!("redlock_layer_hold_seconds", "label" => call.label, "share" => call.share.name())
            .record(since.elapsed());
    }

    pub(super) fn lost(call: Telemetry) {
        counter!("redlock_layer_locks_lost_total", "label" => call.label, "share" => call.share.name())
            .increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod metric {
    use tokio::time::Instant;

    use super::Telemetry;

    /// Reading the clock costs time, which nobody needs here.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Start;

    pub(super) fn now() -> Start {
        Start
    }

    pub(crate) fn describe() {}
    pub(super) fn waiting(_call: Telemetry, _more: f64) {}
    pub(super) fn waited(_call: Telemetry, _result: &'static str, _since: Instant) {}
    pub(super) fn held(_call: Telemetry, _since: Start) {}
    pub(super) fn lost(_call: Telemetry) {}
}
