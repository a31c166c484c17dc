//! What a layer tells of itself: spans of `tracing`, and metrics behind the feature `metrics`.

use std::{sync::Arc, time::Instant};

use redlock_tokio::LossReason;
use tracing::Span;

/// Under which name a layer tells.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    policy: Arc<str>,
}

impl Telemetry {
    pub(crate) fn new(policy: &str) -> Self {
        Self {
            policy: policy.into(),
        }
    }

    pub(crate) fn wait(&self) -> Wait {
        metric::waiting(&self.policy, 1.0);
        Wait {
            policy: Arc::clone(&self.policy),
            since: Instant::now(),
            result: "cancelled",
            span: tracing::debug_span!("lock_wait", policy = &*self.policy),
        }
    }

    pub(crate) fn hold(&self) -> Held {
        Held {
            policy: Arc::clone(&self.policy),
            since: Instant::now(),
        }
    }
}

/// A request waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    policy: Arc<str>,
    since: Instant,
    result: &'static str,
    span: Span,
}

impl Wait {
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Tells how it ended, unless its caller went away.
    pub(crate) fn end(mut self, result: &'static str) {
        self.result = result;
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        // Contention is no error, and everyday.
        tracing::debug!(
            parent: &self.span,
            policy = &*self.policy, result = self.result, ?waited, "waited for a lock"
        );
        metric::waiting(&self.policy, -1.0);
        metric::waited(&self.policy, self.result, waited);
    }
}

/// A call has its lock, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    policy: Arc<str>,
    since: Instant,
}

impl Held {
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!("lock_held", policy = &*self.policy)
    }

    pub(crate) fn lost(&self, reason: LossReason) {
        tracing::warn!(
            policy = &*self.policy,
            %reason,
            "the lock of a call was lost while it ran"
        );
        metric::lost(&self.policy);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        metric::held(&self.policy, self.since.elapsed());
    }
}

/// Named after what OpenTelemetry has for rate limiting in ASP.NET; never with the key as a label.
#[cfg(feature = "metrics")]
mod metric {
    use std::{sync::Arc, time::Duration};

    use metrics::{counter, gauge, histogram};

    pub(super) fn waiting(policy: &Arc<str>, more: f64) {
        gauge!("redlock_queued_requests", "policy" => Arc::clone(policy)).increment(more);
    }

    pub(super) fn waited(policy: &Arc<str>, result: &'static str, waited: Duration) {
        counter!("redlock_requests_total", "policy" => Arc::clone(policy), "result" => result)
            .increment(1);
        histogram!("redlock_time_in_queue_seconds", "policy" => Arc::clone(policy), "result" => result)
            .record(waited);
    }

    pub(super) fn held(policy: &Arc<str>, held: Duration) {
        histogram!("redlock_hold_duration_seconds", "policy" => Arc::clone(policy)).record(held);
    }

    pub(super) fn lost(policy: &Arc<str>) {
        counter!("redlock_locks_lost_total", "policy" => Arc::clone(policy)).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod metric {
    use std::{sync::Arc, time::Duration};

    pub(super) fn waiting(_policy: &Arc<str>, _more: f64) {}
    pub(super) fn waited(_policy: &Arc<str>, _result: &'static str, _waited: Duration) {}
    pub(super) fn held(_policy: &Arc<str>, _held: Duration) {}
    pub(super) fn lost(_policy: &Arc<str>) {}
}
