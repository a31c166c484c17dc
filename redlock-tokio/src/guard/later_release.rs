use std::time::Duration;

use thiserror::Error;

use super::LockGuard;
use crate::{ExtendError, engine::requests::HeldLease};

impl LockGuard {
    /// Keeps the lock until `time` has passed since it was taken, and then releases it in the background. The lock ends no
    /// earlier, even if this process dies once the method has returned.
    ///
    /// Use it where others must find the lock held for a while, however short the work was: for a limit of one call per
    /// second in the whole fleet, or for a job that other hosts want to start a little later. The time counts from the
    /// moment at which this holder got the lock. If it is over already, the lock is released or handed over at once, as by
    /// a drop.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("greeting:ada").await?;
    /// // .. send it ..
    /// guard.release_after(Duration::from_secs(3)).await?;
    ///
    /// assert!(redlock.try_lock("greeting:ada").await.is_err());
    /// tokio::time::sleep(Duration::from_secs(4)).await;
    /// assert!(redlock.try_lock("greeting:ada").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Until then nobody holds the lock, and everybody finds it held: other processes, and the waiters of this process. It
    /// is neither renewed nor handed over, and [`max_hold`](crate::LockOptions::max_hold) does not end it.
    ///
    /// If a majority of the nodes loses the keys meanwhile, the lock ends with them, for this process too:
    /// [`force_unlock`](crate::Redlock::force_unlock) frees it for all. This process learns of it as a
    /// [holder](crate::Hold::is_valid) does: within a round trip if the servers report it, and otherwise when the lock would be
    /// renewed.
    ///
    /// [`Redlock::shutdown`](crate::Redlock::shutdown) neither waits for such a lock nor releases it, and counts it as
    /// [held](crate::ShutdownReport::held). If the process or its runtime ends after the method has returned, the keys expire on
    /// the nodes by themselves: at least `time` after the lock was taken, and later by no more than the drift allowance and the
    /// round trip. A node that did not answer may keep its key for the ttl.
    ///
    /// Waits for one round trip to the majority, in which the nodes learn until when to keep the lock, and for another one if the
    /// lock must be extended first. In the background each node is asked for the lock again at each time at which it would be
    /// renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it has returned drops the guard, which releases the lock.
    ///
    /// # Errors
    ///
    /// Each error has the guard. [`ReleaseAfterError::NotExtended`] says that the lock was lost, or could not be extended
    /// for so long. With [`ExtendError::InvalidTtl`] the time is too long: together with the drift allowance (a hundredth
    /// and 2 ms by default) it must not exceed [`max_ttl`](crate::RedlockBuilder::max_ttl), because a node that restarts
    /// could forget the lock. Such a time is an error even if most of it has passed.
    pub async fn release_after(self, time: Duration) -> Result<(), ReleaseAfterError> {
        if self.hold.is_reader() {
            return Err(ReleaseAfterError::Reader { guard: self });
        }
        match self.release_later(time).await {
            Ok(()) => Ok(()),
            Err(cause) => Err(ReleaseAfterError::NotExtended { guard: self, cause }),
        }
    }

    async fn release_later(&self, time: Duration) -> Result<(), ExtendError> {
        let (held, handle) = (self.hold.held(), self.hold.handle());
        let ttl_to_last = |span| handle.ttl_to_last(span).map_err(ExtendError::InvalidTtl);
        ttl_to_last(time)?;
        let until = held.since().map(|since| since.saturating_add(time));
        loop {
            let now = handle.now();
            // A lock that was lost cannot be extended, and the error says why.
            let until = until.unwrap_or(now);
            if until <= now && held.valid_until(now).is_some() {
                // The guard is dropped, and may hand the lock over.
                return Ok(());
            }
            if let Some(checked) = held.release_at(now, until) {
                let mut unless_dropped = ReleaseOnDrop(Some(held.by_nobody()));
                checked.await;
                unless_dropped.0 = None;
                return Ok(());
            }
            let left = until.saturating_duration_since(now);
            // It may join an extension that has begun before, and that does not last for so long.
            self.hold.extend_by(ttl_to_last(left)?).await?;
        }
    }
}

/// A lock that is to be released later, until the nodes know that.
struct ReleaseOnDrop(Option<HeldLease>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            held.release(held.handle().now());
        }
    }
}

/// Why [`LockGuard::release_after`] does not keep the lock. Dropping the error drops the guard, which releases the lock now.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReleaseAfterError {
    /// The lock is one of a [reader](crate::RedlockRwLock::read), which ends with the last reader.
    #[error("the lock of a reader ends with its readers, and cannot be released later")]
    Reader {
        /// The guard, whose lock is as it was.
        guard: LockGuard,
    },
    /// The lock was lost, or could not be extended for so long.
    #[error("the lock is not kept: {cause}")]
    NotExtended {
        /// The guard. The cause says whether its lock is still held.
        guard: LockGuard,
        /// Why the lock was not extended.
        cause: ExtendError,
    },
}

impl ReleaseAfterError {
    /// Returns the guard.
    pub fn into_guard(self) -> LockGuard {
        match self {
            Self::Reader { guard } | Self::NotExtended { guard, .. } => guard,
        }
    }
}
