//! Whether a request can succeed during an outage, as far as the lanes know.

use std::{task::Poll, time::Duration};

use redlock_core::Timestamp;

use super::conclusion::Request;
use crate::{
    LockError,
    engine::{
        lane::Prospect,
        requests::{Client, Terms},
    },
    key::KeySet,
};

/// Whether a majority of the nodes can vote while a request waits.
#[derive(Clone, Copy)]
pub(super) struct Outlook {
    /// The time of the request.
    pub(super) since: Timestamp,
    /// The end of its wait.
    until: Timestamp,
    fails_fast: bool,
}

impl Outlook {
    pub(super) fn new(since: Timestamp, terms: &Terms) -> Self {
        Self {
            since,
            until: since.saturating_add(terms.policy.wait),
            fails_fast: terms.fails_fast,
        }
    }

    /// Returns what the lanes know now, and has them try to connect. A failure to connect before the request proves
    /// nothing. A request that does not fail fast hopes for the best.
    pub(super) fn look(&self, client: &Client) -> Prospect {
        if !self.fails_fast {
            return Prospect::MayVote;
        }
        let prospect = client.majority(client.clock.now(), self.until, self.since);
        if prospect != Prospect::MayVote {
            client.want_connections();
        }
        prospect
    }

    /// Returns why a request that waits has no prospect. The lanes wake its task when that may have changed.
    pub(super) fn poll_refusal(&self, request: &Request<'_>) -> Poll<LockError> {
        match self.look(request.client) {
            Prospect::NoVote => Poll::Ready(request.refusal()),
            Prospect::InDoubt | Prospect::MayVote => Poll::Pending,
        }
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
            match self.look(client) {
                Prospect::MayVote => {
                    return Ok(self.until.saturating_duration_since(client.clock.now()));
                }
                Prospect::InDoubt => change.await,
                Prospect::NoVote => return Err(Request::new(client, keys, self.since).refusal()),
            }
        }
    }
}
