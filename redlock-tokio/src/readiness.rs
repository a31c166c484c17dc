//! Whether a majority of nodes may vote, by what the lanes know.

use std::time::Duration;

use thiserror::Error;

use crate::{NodeReports, Redlock, node::status, shown_time::WholeSeconds};

impl Redlock {
    /// Waits until a majority of nodes may vote, for at most `limit`.
    ///
    /// Call this method when a service starts, and with a limit of zero in its health check. A server that has just
    /// started has no vote for [`max_ttl`](crate::RedlockBuilder::max_ttl) and a little more, by default at most
    /// 10.2 s after the connection. So 15 s is a good limit if all servers start at the same time.
    /// [`Duration::MAX`] means no limit.
    ///
    /// Asks no node, but reports what the connections know, which can be a second old. A node that stops answering is
    /// noticed when a lock is requested, and otherwise after five seconds. A node that answers, but refused the last
    /// lock (`CLUSTERDOWN`, `NOREPLICAS`, `OOM` and the like), does not count either. That is noticed only when a lock
    /// is requested, and forgotten when the node grants a lock or denies one, or after ten seconds without a request.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// redlock.ready(Duration::from_secs(15)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Fails with [`NotReady::NoQuorum`] after the limit. The error names the nodes that may not vote yet, with
    /// the reason and, if it is known, the time until they may. Fails with [`NotReady::ShutDown`] within a second
    /// of a shutdown.
    pub async fn ready(&self, limit: Duration) -> Result<(), NotReady> {
        let client = self.client();
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
            tokio::select! {
                biased; // Any order would do: after either, the nodes are looked at again.
                _ = change => {}
                () = client.clock.sleep_until(votes_at.min(deadline)) => {}
            }
        }
    }
}

/// Why [`Redlock::ready`](crate::Redlock::ready) failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReady {
    /// Too few nodes may vote: they cannot form a majority.
    #[error(
        "not ready: {votes_needed} of {nodes_total} nodes must agree{} ({nodes})",
        outlook(*remaining)
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

/// Says when a majority votes, if that is known.
fn outlook(remaining: Option<Duration>) -> String {
    let text = remaining.map(|it| format!(", and a majority votes in {}", WholeSeconds(it)));
    text.unwrap_or_default()
}
