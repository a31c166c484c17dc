//! Whether a majority of nodes may vote, by what the lanes know.

use std::{fmt, pin::pin, time::Duration};

use thiserror::Error;

use crate::{NodeReports, engine::lease_cell::Client, node::status, shown_time::WholeSeconds};

/// Why [`Redlock::ready`](crate::Redlock::ready) failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReady {
    /// Too few nodes may vote: they cannot form a majority.
    #[error(
        "not ready: {votes_needed} of {nodes_total} nodes must agree{} ({nodes})",
        Outlook(*remaining)
    )]
    NoQuorum {
        /// How many nodes must agree.
        votes_needed: usize,
        /// How many nodes there are.
        nodes_total: usize,
        /// The time until a majority may vote. `None` if more than quarantines prevents a majority.
        remaining: Option<Duration>,
        /// The nodes that may not vote, with their reasons.
        nodes: NodeReports,
    },
    /// [`Redlock::shutdown`](crate::Redlock::shutdown) was called, or the runtime that the
    /// [`Redlock`](crate::Redlock) was built on has ended.
    #[error("shut down: no new locks are granted")]
    ShutDown,
}

/// When a majority votes, if that is known.
struct Outlook(Option<Duration>);

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(remaining) => write!(f, ", and a majority votes in {}", WholeSeconds(remaining)),
            None => Ok(()),
        }
    }
}

/// Waits until a majority may vote, for at most `limit`.
pub(crate) async fn ready(client: &Client, limit: Duration) -> Result<(), NotReady> {
    let deadline = client.clock.now().saturating_add(limit);
    loop {
        // Registered first, so that no change is missed.
        let change = client.next_change();
        if client.is_shut_down() {
            return Err(NotReady::ShutDown);
        }
        let nodes = client.nodes();
        let remaining = status::quorum_in(&nodes, client.quorum);
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            return Ok(());
        }
        let now = client.clock.now();
        if now >= deadline {
            return Err(NotReady::NoQuorum {
                votes_needed: client.quorum.votes(),
                nodes_total: client.quorum.nodes(),
                remaining,
                nodes: status::objections(nodes),
            });
        }
        let votes_at = remaining.map_or(deadline, |remaining| now.saturating_add(remaining));
        let mut timer = pin!(client.clock.sleep_until(votes_at.min(deadline)));
        tokio::select! {
            biased; // Any order would do: after either, the nodes are looked at again.
            _ = change => {}
            () = &mut timer => {}
        }
    }
}
