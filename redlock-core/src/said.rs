//! For tests: nodes, replies with what they are worth, and milliseconds.

use core::time::Duration;

use crate::{Eligibility, NodeId, Reply, Timestamp};

/// Milliseconds.
pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

pub(crate) fn node(index: usize) -> NodeId {
    NodeId::new(index).expect("below 64")
}

/// A node's reply, and what the node's votes are worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    pub(crate) eligibility: Eligibility,
}

impl From<Reply> for Said {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            eligibility: Eligibility::ALWAYS,
        }
    }
}

/// A reply of a node that votes only in rounds that start at `until` or later.
pub(crate) fn quarantined(reply: Reply, until: Timestamp) -> Said {
    Said {
        reply,
        eligibility: Eligibility::since(until),
    }
}
