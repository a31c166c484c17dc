use std::{any::Any, fmt::Debug, sync::Arc};

use redlock_core::{Eligibility, NodeId, RoundId, Timestamp, Ttl};

use super::set_requests::SetRequests;
use crate::node::{Answer, Command};

/// A lease, as far as the lanes know it: it sends requests and gets the answers.
pub(crate) trait Requester: Any + Debug + Send + Sync {
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

/// Called when a node has carried out a release, for whomever it was. A server does not notify the connection that has made
/// a change, so the lane does.
pub(crate) type OnRelease = Box<dyn Fn(&Command, &dyn Requester) + Send>;

/// Where the answer to a command goes.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    pub(crate) requester: Arc<dyn Requester>,
    pub(crate) round: RoundId,
}
