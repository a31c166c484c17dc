use std::{fmt, future::poll_fn, pin::Pin, sync::Arc};

use thiserror::Error;

use super::{
    conclusion::conclude,
    observed::{self, ObservedRequest},
};
use crate::{
    Attempts, Hold, LockError, LockGuard, LockOptions, LockTicket,
    engine::lease_cell::{self, Client, LeaseRequest},
    key::KeySet,
};

/// A request to adopt a lock. Made by [`Redlock::adopt`](crate::Redlock::adopt), which documents it. Await it to get the lock.
#[must_use = "a lock is only adopted when awaited"]
pub struct Adopt {
    client: Arc<Client>,
    ticket: LockTicket,
    options: LockOptions,
}

impl Adopt {
    pub(crate) fn new(client: Arc<Client>, ticket: LockTicket) -> Self {
        Self {
            client,
            ticket,
            options: LockOptions::new(),
        }
    }

    /// Sets options for this lock, such as its [ttl](LockOptions::ttl). Options that are not set keep what was set before.
    ///
    /// An adoption does not wait, so options about waiting have no effect. The adopted lock is never handed over within the
    /// process.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    async fn run(self) -> Result<LockGuard, AdoptError> {
        let Self {
            client,
            ticket,
            options,
        } = self;
        if client.is_shut_down() {
            return Err(LockError::ShutDown.into());
        }
        let options = match ticket.fencing_token() {
            Some(_) => options.fenced(),
            None => options,
        };
        let terms = client.terms(Some(&options));
        let mut terms = terms.map_err(LockError::InvalidOptions)?;
        let own = Arc::make_mut(&mut terms);
        own.policy.hands_over = false;
        own.adopts_from = Some(ticket.giver().clone());
        let label = options.label_if_set();
        let label = label.or(client.defaults.label_if_set());
        let keys = KeySet::from(ticket.key().clone());
        let request = LeaseRequest {
            subject: observed::subject(&client, &keys, label),
            keys,
            terms,
            label,
        };
        if ticket.is_over(client.wall_clock.since_1970()) {
            return Err(AdoptError::Expired);
        }
        let since = client.clock.now();
        let mut observed = ObservedRequest::begin(&client, &request, since);
        // Does not hold the lock yet, but already releases it when it is dropped.
        let guard = LockGuard::new(Hold::new(lease_cell::adopt(&client, &ticket, &request)));
        let outcome = poll_fn(|cx| guard.cell().poll_acquired(cx)).await;
        let result = conclude(guard, since, outcome, &mut observed);
        result.map_err(|error| match error {
            LockError::Contended(attempts) => AdoptError::Gone(attempts),
            LockError::TooSlow(_) if ticket.is_over(client.wall_clock.since_1970()) => {
                AdoptError::Expired
            }
            error => AdoptError::Lock(error),
        })
    }
}

impl IntoFuture for Adopt {
    type Output = Result<LockGuard, AdoptError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Adopt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopt")
            .field("ticket", &self.ticket)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Why a lock could not be adopted. See [`Redlock::adopt`](crate::Redlock::adopt).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The ticket's [end](LockTicket::expires_at) is over. The lock is free, or another client has it.
    #[error("the ticket has expired")]
    Expired,
    /// Too many nodes do not have the giver's value any more: another client has adopted the lock, its keys have expired,
    /// somebody has deleted them, or the nodes have restarted.
    #[error("the giver does not have the lock any more ({0})")]
    Gone(Attempts),
    /// The nodes or this client are the cause, and not the ticket. Another attempt may succeed, with a clone of the
    /// ticket, if a majority of nodes was not reached by this one.
    #[error(transparent)]
    Lock(#[from] LockError),
}
