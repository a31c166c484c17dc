//! The release of a key that a lease of another client has, by order of a person.

use std::sync::Arc;

use redlock_core::{Eligibility, NodeId, RoundId, Timestamp, Ttl};
use tokio::sync::oneshot;

use super::lane::{LaneHandle, ReplyTo, Requester, SetRequests, runtime_ended};
use crate::{
    NodeError,
    node::{Answer, Command},
    sync::Mutex,
};

/// Waits for the first answer to one command. The lane remembers the release if the node is owed it.
#[derive(Debug)]
struct ForcedRelease {
    ttl: Ttl,
    set_requests: SetRequests,
    answer: Mutex<Option<oneshot::Sender<Answer>>>,
}

impl Requester for ForcedRelease {
    fn handle_answer(
        self: Arc<Self>,
        _: Timestamp,
        _: RoundId,
        _: NodeId,
        answer: Answer,
        _: Eligibility,
    ) {
        if let Some(sender) = self.answer.lock().take() {
            // An error means that nobody waits for it any more.
            let _ = sender.send(answer);
        }
    }

    fn set_requests(&self) -> &SetRequests {
        &self.set_requests
    }

    fn ttl(&self) -> Ttl {
        self.ttl
    }
}

/// Sends a release to a node, and waits for its answer, or for as long as a node may take. `ttl` is for how long the node may
/// have the key, and is owed the release.
pub(crate) async fn forced_release(
    lane: &LaneHandle,
    node: NodeId,
    command: Command,
    ttl: Ttl,
) -> Answer {
    let (answer, answered) = oneshot::channel();
    let requester = Arc::new(ForcedRelease {
        ttl,
        set_requests: SetRequests::sent_to(node),
        answer: Mutex::new(Some(answer)),
    });
    let reply_to = ReplyTo {
        until: Timestamp::MAX,
        requester,
        round: RoundId::NO_LEASE,
    };
    if lane.send(command, reply_to).is_err() {
        return Err(runtime_ended());
    }
    let closed = |_| Err(NodeError::Disconnected("before it answered".into()));
    answered.await.unwrap_or_else(closed)
}
