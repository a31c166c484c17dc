use redlock_tokio::NodeState;
use serde::Serialize;

/// The state of a lock node, for people to see. A public page would leave the address and the reason out.
#[derive(Clone, Debug, Serialize)]
pub struct Light {
    address: String,
    state: &'static str,
    /// The time until the node votes, rounded up, if it started too recently.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
    /// Why the node gives no votes, if anything else prevents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Light {
    /// Describes the state.
    #[must_use]
    pub fn new(address: &str, state: &NodeState) -> Self {
        let (name, seconds, has_reason) = match state {
            NodeState::Voting => ("voting", None, false),
            NodeState::Quarantined { remaining } => {
                let seconds = remaining.as_secs_f64().ceil() as u64;
                ("quarantined", Some(seconds), false)
            }
            NodeState::Silent => ("silent", None, false),
            NodeState::Reconnecting(_) => ("reconnecting", None, true),
            NodeState::Refused(_) => ("refused", None, true),
            _ => ("unknown", None, true),
        };
        Self {
            address: address.to_owned(),
            state: name,
            seconds,
            reason: has_reason.then(|| state.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_tokio::NodeError;
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn each_state_of_a_node_has_a_light_of_its_own() {
        let error = || NodeError::Misconfigured("it is a replica".into());
        let reason = error().to_string();
        let remaining = Duration::from_millis(2_001);
        for (state, mut light) in [
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
            light["address"] = "a".into();
            assert_eq!(to_value(Light::new("a", &state)).unwrap(), light);
        }
    }
}
