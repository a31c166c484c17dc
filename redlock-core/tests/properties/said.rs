//! What a node says, and what its votes are worth.

use redlock_core::{Eligibility, FencingToken, Reply, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    /// The node has a vote in rounds that start then or later.
    pub(crate) votes_from: Timestamp,
}

impl Said {
    pub(crate) fn eligibility(self) -> Eligibility {
        Eligibility::since(self.votes_from)
    }

    /// The counter that is ahead, if the node says so.
    pub(crate) fn counter(self) -> Option<FencingToken> {
        match self.reply {
            Reply::Outbid { counter } => Some(counter),
            _ => None,
        }
    }

    /// Whether the node agrees, but has no vote in a round that starts then.
    pub(crate) fn is_held_back_at(self, start: Timestamp) -> bool {
        let agrees = self.reply == Reply::Granted || self.counter().is_some();
        agrees && start < self.votes_from
    }
}
