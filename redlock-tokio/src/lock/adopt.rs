use std::{fmt, future::poll_fn, pin::Pin, sync::Arc};

use thiserror::Error;

use super::{
    conclusion::{conclude, poll_outcome},
    observed::{self, ObservedRequest},
};
use crate::{
    Attempts, Hold, LockError, LockGuard, LockOptions, LockTicket, Redlock,
    engine::requests::{self, Client},
    key::KeySet,
};

impl Redlock {
    /// Adopts a lock that its holder has [given away](LockGuard::into_ticket): this process holds it from then on, and
    /// renews and releases it.
    ///
    /// Each node replaces the giver's value by a new one, and only where it finds that value. The validity of the lock
    /// counts from this request, as for any lock. A fenced lock gets a new, larger [fencing token](Hold::fencing_token), by
    /// which the resource refuses late writes of the giver.
    ///
    /// ```
    /// # use redlock_tokio::{Redlock, errors::AdoptError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// # let worker = redlock.clone();
    /// let ticket = redlock.lock("order:42").fenced(true).await?.into_ticket()?;
    /// let given = ticket.fencing_token();
    /// let guard = worker.adopt(ticket.clone()).await?;
    /// assert!(guard.fencing_token() > given);
    /// // A job that is delivered twice finds the ticket used.
    /// let twice = worker.adopt(ticket).await;
    /// assert!(matches!(twice, Err(AdoptError::Gone(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Promises
    ///
    /// - At most one client holds the lock at a time, whatever happens to the ticket, and even if messages of the giver
    ///   arrive late.
    /// - A ticket is adopted at most once. (Where a connection of the giver broke before a request to set the key was
    ///   answered, that request may arrive late. Then a second adoption can succeed after the first adopter has released.)
    /// - No other client held the lock between the giver and the adopter, if the wall clocks of the two differ by less than
    ///   the drift allowance: 2 ms and a hundredth of the ttl.
    ///
    /// The ticket has the whole key, with the giver's [prefix](crate::RedlockBuilder::prefix). So the prefix of this client does
    /// not matter, and the adopted lock excludes the clients of the giver's prefix.
    ///
    /// Costs one round trip to the majority, and makes one attempt. The client needs the right to `EVAL`. The requests of
    /// this process for the same key wait for an adopted lock as for one of another process.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, dropping it releases the lock on all nodes that have agreed, and
    /// may use the ticket up.
    ///
    /// # Errors
    ///
    /// Fails with [`AdoptError::Expired`] after the end of the ticket, and with [`AdoptError::Gone`] if too few nodes have the
    /// giver's value. After any error the nodes that had agreed are released. They do not get the giver's value back. So
    /// after [`AdoptError::Lock`] another attempt helps only if the nodes that it reaches still have that value.
    pub fn adopt(&self, ticket: LockTicket) -> Adopt {
        Adopt {
            client: Arc::clone(self.client()),
            ticket,
            options: LockOptions::new(),
        }
    }
}

/// A request to adopt a lock. Made by [`Redlock::adopt`](crate::Redlock::adopt), which documents it. Await it to get the lock.
#[must_use = "a lock is only adopted when awaited"]
pub struct Adopt {
    client: Arc<Client>,
    ticket: LockTicket,
    options: LockOptions,
}

impl Adopt {
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
            Some(_) => options.fenced(true),
            None => options,
        };
        let terms = client.terms(Some(&options));
        let mut terms = terms.map_err(LockError::InvalidOptions)?;
        let own = Arc::make_mut(&mut terms);
        own.policy.hands_over = false;
        own.adopts_from = Some(ticket.giver().clone());
        let keys = KeySet::from(ticket.key().clone());
        let request = observed::request(&client, keys, terms, options.label_if_set());
        if ticket.is_over(client.wall_clock.since_1970()) {
            return Err(AdoptError::Expired);
        }
        let since = client.clock.now();
        let mut observed = ObservedRequest::begin(&client, &request, since);
        // Does not hold the lock yet, but already releases it when it is dropped.
        let mut guard = LockGuard::new(Hold::new(requests::adopt(&client, &ticket, &request)));
        let outcome = poll_fn(|cx| {
            let now = client.clock.now();
            poll_outcome(&mut guard, since, now, cx, &observed)
        });
        let outcome = outcome.await;
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
    /// The ticket's [end](LockTicket::expires_at) is over. The lock is free, or another client has it. If the ticket is
    /// new, the giver's wall clock is behind the one of this process.
    #[error(
        "the ticket has expired: its end, by the giver's wall clock, is over by the clock of this process (if the ticket \
         is new, the clocks differ)"
    )]
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
