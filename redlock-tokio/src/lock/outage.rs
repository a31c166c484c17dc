//! What is known of an outage when a request begins.

use std::time::Duration;

use redlock_core::Timestamp;

use super::conclusion::without_majority;
use crate::{
    Attempts, LockError, NodeReports,
    engine::{lane::Prospect, lease_cell::Shared},
};

/// Whether a majority of the nodes can vote while a request waits.
#[derive(Clone, Copy)]
pub(super) struct Outlook {
    /// The time of the request.
    since: Timestamp,
    /// The end of its wait.
    until: Timestamp,
}

impl Outlook {
    /// Creates the outlook of a request that begins now.
    pub(super) fn new(shared: &Shared, wait: Duration) -> Self {
        let since = shared.clock.now();
        let until = since.saturating_add(wait);
        Self { since, until }
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns what the lanes know. That a node could not be connected to before the request is no proof.
    pub(super) fn majority(&self, shared: &Shared) -> Prospect {
        let now = shared.clock.now();
        let (mut votes, mut in_doubt) = (0, 0);
        for lane in &shared.lanes {
            match lane.prospect(now, self.until, self.since) {
                Prospect::MayVote => votes += 1,
                Prospect::InDoubt => in_doubt += 1,
                Prospect::NoVote => {}
            }
        }
        let needed = shared.quorum.votes();
        if votes >= needed {
            Prospect::MayVote
        } else if votes + in_doubt >= needed {
            Prospect::InDoubt
        } else {
            Prospect::NoVote
        }
    }

    /// Waits until the lanes have tried to connect. Returns the rest of the wait if a majority may vote then.
    ///
    /// A lane begins an attempt within the time that a node may take to answer, and notes one that takes longer. So no
    /// timer is needed here, and no runtime.
    pub(super) async fn settle(&self, shared: &Shared) -> Result<Duration, LockError> {
        loop {
            // Registered first, so that no change is missed.
            let change = shared.next_change();
            if shared.is_shut_down() {
                return Err(LockError::ShutDown);
            }
            match self.majority(shared) {
                Prospect::MayVote => {
                    let now = shared.clock.now();
                    return Ok(self.until.saturating_duration_since(now));
                }
                Prospect::InDoubt => {
                    want_connections(shared);
                    change.await;
                }
                Prospect::NoVote => return Err(self.refusal(shared)),
            }
        }
    }

    /// Returns why no majority can vote, and notes the outage.
    pub(super) fn refusal(&self, shared: &Shared) -> LockError {
        let now = shared.clock.now();
        let attempts = Attempts {
            count: 0,
            votes_needed: shared.quorum.votes(),
            nodes_total: shared.quorum.nodes(),
            waited: now.saturating_duration_since(self.since),
            nodes: NodeReports::default(),
        };
        let error = without_majority(shared, attempts);
        shared.outage.note_failure(now, &error);
        error
    }
}

/// Ends the pauses between attempts to connect, which are longer than some waits.
pub(super) fn want_connections(shared: &Shared) {
    for lane in &shared.lanes {
        lane.want_connection();
    }
}
