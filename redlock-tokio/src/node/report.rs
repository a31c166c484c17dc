use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{Eligibility, Timestamp};
use thiserror::Error;

use super::NodeError;
use crate::shown_time::WholeSeconds;

/// The reports of the nodes that did not agree.
///
/// `Display` names nodes with the same report together, such as `a:6379, b:6379: another client has the key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReports(Arc<[NodeReport]>);

impl NodeReports {
    pub(crate) fn new(reports: Vec<NodeReport>) -> Self {
        Self(reports.into())
    }

    /// Returns the reports, in the order in which they came in.
    pub fn iter(&self) -> impl Iterator<Item = &NodeReport> {
        self.0.iter()
    }

    /// Returns the number of reports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for NodeReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for report in self.iter() {
            let says = report.objection.to_string();
            match groups.iter_mut().find(|(said, _)| *said == says) {
                Some((_, nodes)) => nodes.push(&report.address),
                None => groups.push((says, vec![&report.address])),
            }
        }
        for (index, (says, nodes)) in groups.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {says}", nodes.join(", "))?;
        }
        Ok(())
    }
}

/// The report of one node that did not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's address, without credentials.
    pub address: Arc<str>,
    /// Why it did not agree.
    pub objection: Objection,
}

/// Why a node did not agree.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Objection {
    /// Another client has the key, so it cannot be set.
    #[error("another client has the key")]
    Taken,
    /// The node does not have our key any more, or the giver's in an adoption: it is gone, or another client has set it.
    #[error("the key is gone, or another client has it")]
    Lost,
    /// The node agreed, but may lack a lock that is still held, so it has no vote yet. It came up or became the master
    /// too recently, or no client has known it as the master for long enough.
    #[error(
        "not known to have been up as the master for long enough; may vote in {}",
        WholeSeconds(*remaining)
    )]
    Quarantined {
        /// The time until the node has a vote.
        remaining: Duration,
    },
    /// The node agreed, but no majority of the servers that name its master has confirmed it in time. Another server
    /// may be the master by now.
    #[error(
        "not confirmed as the master: a majority of all its sentinels, or of all nodes of its cluster, must answer \
         this client and name it"
    )]
    Unconfirmed,
    /// The node failed or refused.
    #[error("{0}")]
    Failed(NodeError),
}

impl Objection {
    /// Returns why a node has no vote now, if it has none.
    pub(crate) fn to_vote(now: Timestamp, eligibility: Eligibility) -> Option<Self> {
        if eligibility.covers(now) {
            None
        } else if eligibility.is_unconfirmed(now) {
            Some(Self::Unconfirmed)
        } else {
            let remaining = eligibility.remaining(now);
            Some(Self::Quarantined { remaining })
        }
    }
}
