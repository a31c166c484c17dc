mod later_release;

use std::{fmt, ops::Deref, task::Poll, time::Duration};

use redlock_core::{LossReason, ReleaseVerdict, Timestamp};
use thiserror::Error;

pub use self::later_release::ReleaseAfterError;
use crate::{
    Acquisition, DowngradeError, Hold, LockTicket, NodeReports,
    engine::requests::{Claimant, RequestEnd},
};

/// A held lock. Dropping the guard releases the lock.
///
/// While the guard lives, the lock is extended in the background: every third of its ttl, until it was held for
/// [`max_hold`](crate::LockOptions::max_hold). A guard has neither a task nor a timer of its own: one task renews the
/// locks of all guards.
///
/// A lock can be lost while its guard lives: too many nodes fail, the process is stopped for longer than the lock
/// lives, or another client deletes the key. Check [`is_valid`](Hold::is_valid) before a step that must not happen twice,
/// watch [`lost`](Hold::lost) beside long work, or use [`Lock::with`](crate::Lock::with), which drops
/// the work when the lock is lost.
///
/// ```
/// # use redlock_tokio::Redlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// let guard = redlock.lock("order:42").await?;
/// // .. the work ..
/// assert!(guard.is_valid()); // it was protected so far
/// drop(guard);
/// # Ok(())
/// # }
/// ```
///
/// # Dropping
///
/// Dropping never blocks, spawns or panics, inside or outside a runtime. The release goes to the connections'
/// tasks and costs the caller no round trip. A node that cannot be reached gets the release later, and at the latest
/// the key expires after its ttl. Call [`Redlock::shutdown`](crate::Redlock::shutdown) before the runtime ends, so that
/// the last releases are delivered.
///
/// If other requests of this process wait for the lock, the guard [hands it over](crate::RedlockBuilder::handover_for)
/// instead. A guard that is leaked (`std::mem::forget`) keeps the lock until `max_hold` is over.
#[must_use = "the lock is released as soon as the guard is dropped: bind it to a name, `let _guard = ..` \
              (`let _ = ..` drops it)"]
pub struct LockGuard {
    hold: Hold,
    /// The time from the request to the lock.
    waited: Duration,
}

impl LockGuard {
    /// Makes the owner of a lease that does not hold the lock yet, so that the lock is always released.
    pub(crate) fn new(hold: Hold) -> Self {
        Self {
            hold,
            waited: Duration::ZERO,
        }
    }

    /// Waits until the lock is held, or will not be held. Returns false if it is lost already, or if its client has shut down.
    pub(crate) fn poll_taken(
        &mut self,
        now: Timestamp,
        claimant: &mut Claimant<'_>,
    ) -> Poll<Result<bool, RequestEnd>> {
        self.waited = now.saturating_duration_since(claimant.since);
        self.hold.held_mut().poll_taken(now, claimant)
    }

    /// Releases the lock, and waits until a majority of nodes has confirmed that or no longer can.
    ///
    /// Hands the lock over instead if other requests of this process wait for it (see
    /// [`handover_for`](crate::RedlockBuilder::handover_for)).
    ///
    /// Costs one round trip to the majority, or none. Use this method if the next step must find the lock free.
    /// Otherwise drop the guard, which costs nothing.
    ///
    /// ```
    /// # use redlock_tokio::{Redlock, ReleaseOutcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let report = guard.release().await;
    /// assert_eq!(report.outcome, ReleaseOutcome::Released);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The release is sent when the future is polled for the first time. Dropping the future before that drops the
    /// guard, which releases the lock too.
    pub async fn release(self) -> ReleaseReport {
        if self.hold.held().pass_on(self.hold.handle().now()) {
            return ReleaseReport {
                outcome: ReleaseOutcome::HandedOver,
                nodes: NodeReports::default(),
            };
        }
        ReleaseReport {
            outcome: match self.hold.held().released().await {
                Some(ReleaseVerdict::Released) => ReleaseOutcome::Released,
                Some(ReleaseVerdict::Unconfirmed) => ReleaseOutcome::Unconfirmed,
                _ => ReleaseOutcome::NotHeld,
            },
            nodes: self.hold.handle().reports(),
        }
    }

    /// Turns the lock of a [writer](crate::RedlockRwLock::write) into one of a reader, without a moment at which it is free.
    /// Other readers may come from then on, and no writer.
    ///
    /// Use it if the work goes on with what was written. A [fencing token](Hold::fencing_token) ends with the downgrade. There
    /// is no way back. A lock that was downgraded already stays as it is.
    ///
    /// Costs one round trip to the majority, which also extends the lock. The client needs the rights of a reader on the
    /// servers, which are listed in `DEPLOYMENTS.md` in the repository.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let catalogue = redlock.rw_lock("catalogue");
    /// let guard = catalogue.write().await?;
    /// // .. write ..
    /// guard.downgrade().await?;
    /// assert!(catalogue.try_read().await.is_ok());
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the lock counts as one of a reader, and the downgrade goes on without its caller.
    ///
    /// # Errors
    ///
    /// Fails with [`DowngradeError::NotAWriter`] for other locks, which stay as they are. After [`ExtendError::NoQuorum`] the
    /// lock is still held, but counts as one of a reader: nodes may have let others in. Renewal goes on, and downgrades it on
    /// the other nodes. Without the rights of a reader it cannot do so, and the lock is lost when its ttl is over.
    ///
    /// [`ExtendError::NoQuorum`]: crate::ExtendError::NoQuorum
    pub async fn downgrade(&self) -> Result<(), DowngradeError> {
        if !self.hold.handle().is_writer() {
            return Err(DowngradeError::NotAWriter);
        }
        let outcome = self.hold.held().downgrade().await;
        Ok(self.hold.judge(outcome)?)
    }

    /// Gives the lock away, for another process to [adopt](crate::Redlock::adopt). Use it if the other process is to finish
    /// what this one has begun, and nobody may come between the two.
    ///
    /// This process does not hold the lock any more: it neither renews nor releases it, whatever happens to the ticket.
    /// Views of the lock behave as after a release. Requests of this process that wait for the lock wait for the adopter, as
    /// for any other process.
    ///
    /// The ticket can be adopted for as long as this lock would have been [valid](crate::Hold::remaining). With the defaults that is
    /// 6.5 to 10 seconds. If the other process may need longer, call [`extend_for`](crate::Hold::extend_for) before.
    ///
    /// Costs no round trip.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// # let other_process = redlock.clone();
    /// let guard = redlock.lock("order:42").await?;
    /// let ticket = guard.into_ticket()?;
    /// // .. the ticket goes to another process ..
    /// let guard = other_process.adopt(ticket).await?;
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`TicketError::Shared`] for a permit, the lock of a reader, and a lock of several keys. The error has the
    /// guard. Fails with [`TicketError::Lost`] if the lock is lost.
    pub fn into_ticket(self) -> Result<LockTicket, TicketError> {
        if !self.hold.handle().has_one_owner() {
            return Err(TicketError::Shared { guard: self });
        }
        let held = self.hold.held();
        held.give().ok_or_else(|| TicketError::Lost(held.loss()))
    }

    /// Returns a view of the lock. [`Hold::view`] makes others to pass on. A view does not keep the lock.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns which nodes granted the lock, after how many attempts and in what time, or that an earlier holder in
    /// this process handed it over.
    ///
    /// Asks no node. Allocates the list of addresses on each call.
    ///
    /// ```
    /// # use redlock_tokio::{Acquisition, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// println!("{}", guard.acquisition()); // granted by 3 of 5 nodes (..) ..
    /// let Acquisition::Granted { granted_by, .. } = guard.acquisition() else {
    ///     unreachable!("no other holder was there")
    /// };
    /// assert!(granted_by.len() >= 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn acquisition(&self) -> Acquisition {
        self.hold.held().acquisition(self.waited)
    }
}

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let now = self.hold.handle().now();
        // A holder that panics may leave the resource half changed, so its lock is not handed over.
        self.hold.held_mut().end(now, !std::thread::panicking());
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// The result of [`LockGuard::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseReport {
    /// How the release ended.
    pub outcome: ReleaseOutcome,
    /// The nodes that did not delete the key, with their reasons. Nodes that had not answered yet are missing.
    pub nodes: NodeReports,
}

/// How a [`LockGuard::release`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock went to the next waiter in this process, or stays with other readers of this process. It was not released
    /// on the nodes.
    HandedOver,
    /// A majority of nodes deleted the key: the lock is free.
    Released,
    /// The lock had been lost before: the end of the work under it was not protected.
    NotHeld,
    /// Too many nodes did not answer. They get the release when they answer again, and at the latest their keys expire
    /// after the ttl.
    Unconfirmed,
}

/// Why a lock could not be given away. See [`LockGuard::into_ticket`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The lock is a [permit](crate::Redlock::semaphore), one of a [reader](crate::RedlockRwLock::read), or one of
    /// [several keys](crate::Redlock::lock_all).
    #[error("only a lock of one key that nobody shares can be given away")]
    Shared {
        /// The guard, which still has the lock.
        guard: LockGuard,
    },
    /// The lock is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
}
