//! What the rule of owners holds back, as a process shows it.

use redlock_tokio::{NodeState, Redlock};
use tokio::time::sleep;

use super::owners::Owners;
use crate::{
    network::SharedNetwork,
    process::{Stage, Stages},
    scale::Scale,
    seen::Seen,
};

/// Counts how often nodes have no vote since no majority confirms them, or not since long enough.
pub(crate) async fn watch_states(
    redlock: Redlock,
    network: SharedNetwork,
    scale: Scale,
    stages: Stages,
) {
    while !stages.has_come(Stage::End) {
        for status in redlock.nodes() {
            match status.state {
                NodeState::Unconfirmed => network.lock().seen.note(Seen::Unconfirmed),
                NodeState::Quarantined { .. } => network.lock().seen.note(Seen::Settling),
                _ => {}
            }
        }
        tokio::select! {
            biased;
            () = stages.come(Stage::End) => {}
            () = sleep(Owners::window(scale.max_ttl)) => {}
        }
    }
}
