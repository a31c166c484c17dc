use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use redlock_core::{LossReason, Share};

use super::{Event, LockChange, LockEvent, NodeChange, NodeEvent, Observer};
use crate::{Acquisition, LockError, NodeState};

/// Counts locks and nodes by the crate `metrics`, behind the feature `metrics`.
///
/// `METRICS.md` in the repository explains each metric, and when to worry. None has a key. Locks without a
/// [label](crate::LockOptions::label) have the label `default`.
///
/// ```
/// # use redlock_tokio::{MetricsObserver, Redlock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Install the recorder first, such as `metrics_exporter_prometheus::PrometheusBuilder`.
/// let builder = Redlock::builder().embedded().observer(MetricsObserver::new());
/// let redlock = builder.build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct MetricsObserver {}

impl MetricsObserver {
    /// Describes the metrics to the recorder that is installed by now.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "it tells the recorder something"
    )]
    pub fn new() -> Self {
        let seconds = Unit::Seconds;
        describe_counter!("redlock_requests_total", "Requests for locks, by result");
        describe_gauge!(
            "redlock_waiting_requests",
            "Requests that wait for their locks now"
        );
        describe_histogram!("redlock_wait_seconds", seconds, "How long requests waited");
        describe_counter!(
            "redlock_attempts_total",
            "Rounds in which the nodes were asked for a lock"
        );
        describe_gauge!("redlock_held_locks", "Locks that are held now");
        describe_histogram!("redlock_hold_seconds", seconds, "How long locks were held");
        describe_counter!(
            "redlock_extensions_total",
            "Extensions of held locks, by result"
        );
        describe_counter!(
            "redlock_locks_lost_total",
            "Locks lost by their holders, by reason"
        );
        describe_counter!(
            "redlock_failed_open_total",
            "Calls of layers that ran without their locks"
        );
        describe_gauge!(
            "redlock_node_state",
            "1 for the state that the node has, and 0 for the others"
        );
        describe_gauge!(
            "redlock_node_quarantine_seconds",
            seconds,
            "The length of the quarantine that the node is in, from when it was noticed"
        );
        describe_counter!(
            "redlock_node_connections_total",
            "Connections made to the node"
        );
        describe_histogram!(
            "redlock_node_round_trip_seconds",
            seconds,
            "How long the node took to answer a batch of requests"
        );
        describe_gauge!(
            "redlock_node_owed_releases",
            "Releases that wait for the node to come back"
        );
        describe_counter!(
            "redlock_node_abandoned_releases_total",
            "Releases that never reached the node"
        );
        Self {}
    }
}

impl Observer for MetricsObserver {
    fn observe(&self, event: &Event) {
        match event {
            Event::Lock(event) => record_lock(event),
            Event::Node(event) => record_node(event),
            Event::FailedOpen { label } => {
                counter!("redlock_failed_open_total", "label" => *label).increment(1);
            }
        }
    }
}

fn record_lock(event: &LockEvent) {
    let label = event.label().unwrap_or("default");
    let share = name_of_share(event.share());
    let waiting = |more: f64| {
        gauge!("redlock_waiting_requests", "label" => label, "share" => share).increment(more);
    };
    let waited = |result: &'static str, waited: Duration| {
        waiting(-1.0);
        counter!("redlock_requests_total", "label" => label, "share" => share, "result" => result)
            .increment(1);
        histogram!("redlock_wait_seconds", "label" => label, "share" => share, "result" => result)
            .record(waited);
    };
    let holding = |more: f64| {
        gauge!("redlock_held_locks", "label" => label, "share" => share).increment(more);
    };
    let held = |held: Duration| {
        holding(-1.0);
        histogram!("redlock_hold_seconds", "label" => label, "share" => share).record(held);
    };
    let extended = |result: &'static str| {
        counter!("redlock_extensions_total", "label" => label, "share" => share, "result" => result)
            .increment(1);
    };
    match &event.change {
        LockChange::Requested => waiting(1.0),
        LockChange::Attempted { .. } => {
            counter!("redlock_attempts_total", "label" => label, "share" => share).increment(1);
        }
        LockChange::Acquired { acquisition, .. } => {
            waited(name_of_grant(acquisition), acquisition.waited());
            holding(1.0);
        }
        LockChange::Failed {
            error,
            waited: time,
        } => waited(name_of_error(error), *time),
        LockChange::Cancelled { waited: time } => waited("cancelled", *time),
        LockChange::Extended { .. } => extended("extended"),
        LockChange::ExtensionFailed { .. } => extended("failed"),
        LockChange::Downgraded { held: time, .. } => {
            held(*time);
            let share = name_of_share(Share::Reader);
            gauge!("redlock_held_locks", "label" => label, "share" => share).increment(1.0);
        }
        LockChange::Released { held: time, .. }
        | LockChange::HandedOver { held: time, .. }
        | LockChange::GivenAway { held: time, .. } => held(*time),
        LockChange::Lost {
            reason, held: time, ..
        } => {
            let reason = name_of_loss(*reason);
            held(*time);
            counter!("redlock_locks_lost_total", "label" => label, "share" => share, "reason" => reason)
                .increment(1);
        }
    }
}

fn record_node(event: &NodeEvent) {
    let node = || event.address.to_string();
    match &event.change {
        NodeChange::Connected { owner } => {
            // Prometheus takes an empty label as none.
            let owner = owner.as_deref().unwrap_or_default().to_owned();
            counter!("redlock_node_connections_total", "node" => node(), "owner" => owner)
                .increment(1);
        }
        NodeChange::Entered(state) => {
            let quarantine = match state {
                NodeState::Quarantined { remaining } => *remaining,
                _ => Duration::ZERO,
            };
            set_state(event, Some(name_of_state(state)));
            gauge!("redlock_node_quarantine_seconds", "node" => node()).set(quarantine);
        }
        NodeChange::Answered { round_trip } => {
            histogram!("redlock_node_round_trip_seconds", "node" => node()).record(*round_trip);
        }
        NodeChange::Owed { releases } => {
            gauge!("redlock_node_owed_releases", "node" => node()).set(*releases as f64);
        }
        NodeChange::Abandoned { releases } => {
            counter!("redlock_node_abandoned_releases_total", "node" => node())
                .increment(*releases as u64);
        }
        NodeChange::Ended => set_state(event, None),
    }
}

/// Sets the gauge of each state, so that the sum over the nodes is right at any time.
fn set_state(event: &NodeEvent, current: Option<&'static str>) {
    for state in STATES {
        let value = if Some(state) == current { 1.0 } else { 0.0 };
        gauge!("redlock_node_state", "node" => event.address.to_string(), "state" => state)
            .set(value);
    }
}

const STATES: [&str; 6] = [
    "voting",
    "quarantined",
    "unconfirmed",
    "silent",
    "reconnecting",
    "refused",
];

fn name_of_state(state: &NodeState) -> &'static str {
    match state {
        NodeState::Voting => "voting",
        NodeState::Quarantined { .. } => "quarantined",
        NodeState::Unconfirmed => "unconfirmed",
        NodeState::Silent => "silent",
        NodeState::Reconnecting(_) => "reconnecting",
        NodeState::Refused(_) => "refused",
    }
}

fn name_of_share(share: Share) -> &'static str {
    match share {
        Share::Permit(_) => "permit",
        Share::Reader => "reader",
        Share::Writer => "writer",
        // The enum may grow.
        _ => "exclusive",
    }
}

fn name_of_grant(acquisition: &Acquisition) -> &'static str {
    match acquisition {
        Acquisition::Granted { .. } => "granted",
        Acquisition::HandedOver { .. } => "handed_over",
        Acquisition::Joined { .. } => "joined",
    }
}

fn name_of_error(error: &LockError) -> &'static str {
    match error {
        LockError::Contended(_) => "contended",
        LockError::NoQuorum(_) => "no_quorum",
        LockError::Overloaded(_) => "overloaded",
        LockError::TooSlow(_) => "too_slow",
        LockError::NotPolled(_) => "not_polled",
        LockError::Quarantined { .. } => "quarantined",
        LockError::QueueFull { .. } => "queue_full",
        LockError::FenceExhausted => "fence_exhausted",
        LockError::InvalidKey(_) | LockError::InvalidOptions(_) => "invalid",
        LockError::ShutDown => "shut_down",
        LockError::Random(_) => "no_randomness",
    }
}

fn name_of_loss(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::MaxHold => "max_hold",
        LossReason::KeysLost => "keys_lost",
        LossReason::VotesWithdrawn => "votes_withdrawn",
        LossReason::Abandoned => "abandoned",
        // The enum may grow.
        _ => "other",
    }
}
