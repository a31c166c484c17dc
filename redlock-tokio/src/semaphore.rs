use std::{fmt, sync::Arc, time::Duration};

use redlock_core::Permits;

use crate::{
    Lock, LockError, LockGuard, Redlock,
    engine::requests::Client,
    key::{KeySet, SlotKeys},
};

impl Redlock {
    /// Returns the semaphore with this key, of which at most `permits` clients in the whole fleet hold a permit at once.
    /// Asks no node: see [`RedlockSemaphore::acquire`].
    ///
    /// There can be 1 to 128 permits. Another number, or a key that is not allowed, makes each request fail.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let permit = redlock.semaphore("report-engine", 4).acquire().await?;
    /// assert!(permit.slot() < Some(4));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn semaphore(&self, key: impl AsRef<[u8]>, permits: usize) -> RedlockSemaphore {
        let client = Arc::clone(self.client());
        let permits = Permits::new(permits).map_err(|it| LockError::InvalidOptions(it.into()));
        let key = permits.and_then(|permits| {
            let slots = SlotKeys::new(&client.prefix, key.as_ref(), permits);
            slots.map(KeySet::from).map_err(LockError::InvalidKey)
        });
        RedlockSemaphore { client, key }
    }
}

/// A semaphore over the nodes, which limits how many clients of the fleet hold it at once. Made by
/// [`Redlock::semaphore`](crate::Redlock::semaphore).
///
/// Each holder has a permit, which is one of the semaphore's *slots*: a key `<key>:slot:<index>` that is held as a lock is
/// held. So a permit is as safe as a lock, and has the guard, the options and the errors of one.
///
/// ```
/// # use redlock_tokio::Redlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// let reports = redlock.semaphore("report-engine", 2);
/// let first = reports.acquire().await?;
/// let second = reports.acquire().await?;
/// assert_ne!(first.slot(), second.slot());
/// assert!(reports.try_acquire().await.unwrap_err().is_contended());
/// drop(first);
/// let _third = reports.acquire().await?;
/// # Ok(())
/// # }
/// ```
///
/// All clients should agree on the number of permits. If they do not, there are at most as many holders as the largest of
/// the numbers, and clients with different numbers stand in different lines.
///
/// A semaphore has nothing to do with a lock of the same key, and one with a single permit is not a lock of its key. A
/// plain lock of the key `<key>:slot:<index>`, by any client, takes that permit.
///
/// # Several permits at once
///
/// There is no request for several permits. A client that takes them one by one, with a limit on each wait, gives back what it
/// has if it does not get all of them. If many clients want several, each of them holds a lock of another key while it
/// collects its permits: otherwise two can wait for each other, each with half of the permits.
///
/// # Order
///
/// Within a process, requests begin to ask for permits in the order in which they came, and a permit that is handed over
/// goes to the one that waits longest for its turn. Processes stand in a line. A permit that is given back goes to one of the
/// first eight in it, or to the first if the others have permits already. A process takes as many as it needs of those that
/// are free.
///
/// # Fencing
///
/// A [fencing token](crate::LockOptions::fenced) of a permit orders the holders of its [slot](crate::Hold::slot). So a
/// resource that checks tokens keeps one number for each slot.
#[derive(Clone)]
pub struct RedlockSemaphore {
    client: Arc<Client>,
    key: Result<KeySet, LockError>,
}

impl RedlockSemaphore {
    /// Acquires a permit, and waits while all are taken. [`Lock`] has the options, and
    /// [`LockFuture`](crate::LockFuture) documents cancel safety.
    ///
    /// Costs one round trip to the majority if the permit is free that the request tries first: one that this process has
    /// given back, or a random one. Otherwise the request looks at all permits, and tries one that it has seen free:
    /// three round trips. A permit that is [handed over](crate::RedlockBuilder::handover_for) within the process costs none.
    ///
    /// # Errors
    ///
    /// Fails with [`LockError::InvalidOptions`] if there are no permits, or more than 128, and with
    /// [`LockError::Contended`] if all permits were taken until the end of the wait. [`LockError`] lists the other errors.
    pub fn acquire(&self) -> Lock {
        Lock::new(Arc::clone(&self.client), self.key.clone())
    }

    /// Makes one attempt to acquire a permit, or two if the first one was for a permit that is taken and others are free.
    ///
    /// Costs one round trip to the majority, or three.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up. Keys that were set on nodes are released in the background.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<LockGuard, LockError> {
        self.acquire().wait(Duration::ZERO).await
    }
}

impl fmt::Debug for RedlockSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.key.as_ref().ok().and_then(KeySet::slots);
        let permits = slots.map(|slots| slots.permits().count());
        f.debug_struct("RedlockSemaphore")
            .field("permits", &permits)
            .finish_non_exhaustive()
    }
}
