use redlock_axum::redlock_tokio::{NodeState, NodeStatus};
use serde::Serialize;

/// The state of a lock node, for people to see. A public page would leave the address and the reason out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Light {
    address: String,
    #[serde(flatten)]
    color: Color,
}

/// Whether a node can vote for a lock.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Color {
    Voting,
    /// The node started too recently to vote.
    Quarantined {
        /// The remaining time, rounded up.
        seconds: u64,
    },
    Silent,
    Reconnecting {
        reason: String,
    },
    Refused {
        reason: String,
    },
    Unknown {
        reason: String,
    },
}

impl From<NodeStatus> for Light {
    fn from(status: NodeStatus) -> Self {
        Self {
            address: status.address.to_string(),
            color: status.state.into(),
        }
    }
}

impl From<NodeState> for Color {
    fn from(state: NodeState) -> Self {
        let reason = state.to_string();
        match state {
            NodeState::Voting => Self::Voting,
            NodeState::Quarantined { remaining } => Self::Quarantined {
                seconds: remaining.as_secs_f64().ceil() as u64,
            },
            NodeState::Silent => Self::Silent,
            NodeState::Reconnecting(_) => Self::Reconnecting { reason },
            NodeState::Refused(_) => Self::Refused { reason },
            _ => Self::Unknown { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_axum::redlock_tokio::NodeError;
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn each_state_of_a_node_has_a_light_of_its_own() {
        let error = || NodeError::Misconfigured("it is a replica".into());
        let reason = error().to_string();
        let remaining = Duration::from_millis(2_001);
        for (state, light) in [
            (NodeState::Voting, json!({ "state": "voting" })),
            (
                NodeState::Quarantined { remaining },
                json!({ "state": "quarantined", "seconds": 3 }),
            ),
            (NodeState::Silent, json!({ "state": "silent" })),
            (
                NodeState::Reconnecting(error()),
                json!({ "state": "reconnecting", "reason": reason }),
            ),
            (
                NodeState::Refused(error()),
                json!({ "state": "refused", "reason": reason }),
            ),
        ] {
            assert_eq!(to_value(Color::from(state)).unwrap(), light);
        }
    }
}
