use redlock_core::LossReason;
use thiserror::Error;

use super::LockGuard;
use crate::LockTicket;

impl LockGuard {
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
        if !self.hold.cell().has_one_owner() {
            return Err(TicketError::Shared { guard: self });
        }
        let held = self.hold.held();
        held.give().ok_or_else(|| TicketError::Lost(held.loss()))
    }
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
