use std::{fmt::Debug, sync::Arc};

use redlock_core::{Eligibility, NodeId, RoundId, Timestamp, Ttl};

use super::set_requests::SetRequests;
use crate::node::Answer;

/// A lease, as far as the lanes know it: it sends requests and gets the answers.
pub(crate) trait Requester: Debug + Send + Sync {
    /// Takes a node's answer, or the reason why there is none, and what the node's votes are worth.
    fn handle_answer(
        self: Arc<Self>,
        now: Timestamp,
        round: RoundId,
        node: NodeId,
        answer: Answer,
        eligibility: Eligibility,
    );

    /// Returns where lanes note the requests to set the key that they sent.
    fn set_requests(&self) -> &SetRequests;

    /// Returns the longest time that a key lives after a node has set or extended it.
    fn ttl(&self) -> Ttl;
}

/// Where the answer to a command goes.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    pub(crate) requester: Arc<dyn Requester>,
    pub(crate) round: RoundId,
}
