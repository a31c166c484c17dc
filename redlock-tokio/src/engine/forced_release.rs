//! The release of a key that a lease of another client has, by order of a person.

use std::sync::Arc;

use redlock_core::{NodeId, RoundId, Timestamp, Ttl};
use tokio::sync::oneshot;

use super::lane::{LaneHandle, ReplyTo, SetRequests, Whom, runtime_ended};
use crate::{
    NodeError,
    node::{Answer, Command},
    sync::Mutex,
};

/// Sends a release to a node, and waits for its answer, or for as long as a node may take. `ttl` is for how long the node may
/// have the key, and is owed the release.
pub(crate) async fn forced_release(
    lane: &LaneHandle,
    node: NodeId,
    command: Command,
    ttl: Ttl,
) -> Answer {
    let (answer, answered) = oneshot::channel();
    let reply_to = ReplyTo {
        whom: Whom::Forced(Arc::new(Mutex::new(Some(answer)))),
        round: RoundId::NO_LEASE,
        set_requests: Arc::new(SetRequests::sent_to(node)),
        ttl,
        until: Timestamp::MAX,
    };
    if lane.send(command, reply_to).is_err() {
        return Err(runtime_ended());
    }
    let closed = |_| Err(NodeError::Disconnected("before it answered".into()));
    answered.await.unwrap_or_else(closed)
}
