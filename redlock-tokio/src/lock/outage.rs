//! Whether a request can succeed during an outage, as far as the lanes know when it begins.

use std::time::Duration;

use redlock_core::Timestamp;

use super::conclusion::{Request, without_majority};
use crate::{
    LockError,
    engine::{lane::Prospect, lease_cell::Client},
    key::KeySet,
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
    /// Creates the outlook of a request that begins at `since`.
    pub(super) fn new(since: Timestamp, wait: Duration) -> Self {
        let until = since.saturating_add(wait);
        Self { since, until }
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns what the lanes know. A failure to connect before the request proves nothing.
    pub(super) fn majority(&self, client: &Client, now: Timestamp) -> Prospect {
        client.majority(now, self.until, self.since)
    }

    /// Waits until the lanes have tried to connect. Returns the rest of the wait if a majority may vote then.
    ///
    /// A lane begins an attempt within the time that a node may take to answer, and notes one that takes longer. So no
    /// timer is needed here, and no runtime.
    pub(super) async fn resolve(
        &self,
        client: &Client,
        keys: &KeySet,
    ) -> Result<Duration, LockError> {
        loop {
            // Registered first, so that no change is missed.
            let change = client.next_change();
            if client.is_shut_down() {
                return Err(LockError::ShutDown);
            }
            let now = client.clock.now();
            match self.majority(client, now) {
                Prospect::MayVote => return Ok(self.until.saturating_duration_since(now)),
                Prospect::InDoubt => {
                    client.want_connections();
                    change.await;
                }
                Prospect::NoVote => return Err(self.refusal(client, keys)),
            }
        }
    }

    /// Returns why no majority can vote, and notes the outage.
    pub(super) fn refusal(&self, client: &Client, keys: &KeySet) -> LockError {
        let now = client.clock.now();
        let attempts = Request::new(client, keys, self.since).attempts(0);
        let error = without_majority(client, attempts);
        client.outage.note_failure(now, &error);
        error
    }
}
