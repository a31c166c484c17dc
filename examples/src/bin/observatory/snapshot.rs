//! What the page shows at one moment.

use redlock_axum::redlock_tokio::{Holder, NodeState, NodeStatus, node::Occupant};
use redlock_examples::{Light, lock, millis};
use serde::Serialize;

use crate::{client::Plan, name::Name, node::Mode, onlooker::Onlooker, stage::Stage};

/// The nodes, the keys and the clients.
#[derive(Debug, Serialize)]
pub(crate) struct Snapshot {
    /// What a user can do something to. `None` over real nodes.
    stage: Option<Staged>,
    nodes: Vec<NodeView>,
    keys: Vec<KeyView>,
}

/// What there is in the embedded mode alone.
#[derive(Debug, Serialize)]
struct Staged {
    modes: Vec<Mode>,
    clients: Vec<ClientView>,
    /// How often two clients were at work under one key.
    overlaps: u64,
}

#[derive(Debug, Serialize)]
struct NodeView {
    #[serde(flatten)]
    light: Light,
    votes: bool,
}

#[derive(Debug, Serialize)]
struct KeyView {
    name: Name,
    /// The token on each node.
    nodes: Vec<Option<TokenView>>,
    /// The judgement of all nodes together. `None` before the first look, and over embedded nodes.
    verdict: Option<String>,
}

#[derive(Debug, Serialize)]
struct TokenView {
    holder: String,
    remaining_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ClientView {
    name: Name,
    runs: bool,
    #[serde(flatten)]
    plan: Plan,
}

impl Snapshot {
    /// Looks at the embedded nodes themselves, so that the keys of a node are shown even while it answers nobody.
    pub(crate) fn of_stage(stage: &Stage) -> Self {
        let nodes = &stage.surroundings.nodes;
        let clients: Vec<_> = lock(&stage.clients)
            .iter()
            .map(|(name, client)| ClientView {
                name: name.clone(),
                runs: client.is_running(),
                plan: client.plan().clone(),
            })
            .collect();
        let mut keys: Vec<_> = clients.iter().map(|it| it.plan.key.clone()).collect();
        keys.sort();
        keys.dedup();
        let on_node = |key: &Name| {
            let token = |holder: Holder| TokenView {
                holder: holder.to_string(),
                remaining_ms: None,
            };
            let nodes = nodes.iter();
            nodes.map(|it| it.holder(key.as_str()).map(token)).collect()
        };
        Self {
            nodes: views(&stage.onlooker.nodes()),
            keys: keys
                .into_iter()
                .map(|key| KeyView {
                    nodes: on_node(&key),
                    verdict: None,
                    name: key,
                })
                .collect(),
            stage: Some(Staged {
                modes: nodes.iter().map(|it| it.mode()).collect(),
                clients,
                overlaps: stage.surroundings.sections.overlaps(),
            }),
        }
    }

    /// Shows what the last look at real nodes has found.
    pub(crate) fn of_onlooker(onlooker: &Onlooker) -> Self {
        let nodes = onlooker.redlock.nodes();
        let keys = lock(&onlooker.keys);
        let keys = keys.iter().map(|(name, seen)| {
            let Some(inspection) = &seen.found else {
                return KeyView {
                    name: name.clone(),
                    nodes: nodes.iter().map(|_| None).collect(),
                    verdict: None,
                };
            };
            let on_nodes = inspection.nodes().iter();
            KeyView {
                name: name.clone(),
                nodes: on_nodes
                    .map(|node| {
                        let state = node.state.as_ref().ok()?;
                        state.lock.as_ref().map(TokenView::of)
                    })
                    .collect(),
                verdict: Some(inspection.verdict().to_string()),
            }
        });
        Self {
            stage: None,
            keys: keys.collect(),
            nodes: views(&nodes),
        }
    }
}

impl TokenView {
    fn of(occupant: &Occupant) -> Self {
        let holder = occupant.holder.as_ref();
        Self {
            holder: holder.map_or_else(|| "no lock".to_owned(), ToString::to_string),
            remaining_ms: occupant.remaining.map(millis),
        }
    }
}

fn views(nodes: &[NodeStatus]) -> Vec<NodeView> {
    nodes
        .iter()
        .map(|node| NodeView {
            light: Light::new(&node.address, &node.state),
            votes: matches!(node.state, NodeState::Voting),
        })
        .collect()
}
