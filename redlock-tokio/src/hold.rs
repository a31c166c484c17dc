use std::{fmt, future::poll_fn, pin::pin, task::Poll, time::Duration};

use redlock_core::{FencingToken, LossReason, Slot, Token, Ttl};

use crate::{
    ExtendError, Key,
    engine::requests::{ExtensionOutcome, Handle, HeldLease},
};

/// A view of a held lock: whether it is still held, for how long, and when it is lost.
///
/// A view does not keep the lock: the [`LockGuard`](crate::LockGuard) does. Other [views](Self::view) are
/// cheap. Pass them to the code that works under the lock.
///
/// ```
/// # use redlock_tokio::{Hold, Redlock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// async fn work(hold: Hold) {
///     for _part in 0..3 {
///         if !hold.is_valid() {
///             return; // another client may hold the lock now
///         }
///         // .. one part of the work ..
///     }
/// }
///
/// let guard = redlock.lock("order:42").await?;
/// tokio::spawn(work(guard.hold().view())).await?;
/// # Ok(())
/// # }
/// ```
///
/// A guard is no hold, and neither can be cloned:
///
/// ```compile_fail,E0599
/// # async fn f(guard: redlock_tokio::LockGuard) {
/// let second = guard.clone();
/// # }
/// ```
pub struct Hold {
    held: HeldLease,
}

impl Hold {
    pub(crate) fn new(held: HeldLease) -> Self {
        Self { held }
    }

    /// Returns another view of the same hold, for another task. It does not keep the lock: that ends with its guard.
    #[must_use]
    pub fn view(&self) -> Self {
        Self::new(self.held.clone())
    }

    /// Returns whether the lock is held now.
    ///
    /// Reads the clock and asks no node. So the answer is right even if the process was paused until after the lock
    /// had expired. If another client deletes or changes the key on a majority of the nodes, servers report that within a round
    /// trip, over RESP3 and from the first extension of the lock on. Otherwise the next renewal notices it, by default within a
    /// third of the ttl.
    ///
    /// The answer can be out of date as soon as it is returned. A step that must not happen without the lock needs a
    /// [fencing token](Self::fencing_token).
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().no_renewal();
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// assert!(guard.is_valid());
    /// tokio::time::advance(Duration::from_secs(10)).await; // the ttl
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.held.valid_until(self.handle().now()).is_some()
    }

    /// Returns how long the lock stays valid if no extension succeeds. Zero if the lock is not held.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").ttl(Duration::from_secs(3)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(2));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.handle().now();
        self.held
            .valid_until(now)
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Waits until the lock is lost, and returns the reason.
    ///
    /// A release is not a loss: after a release this future never ends.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// # async fn work() {}
    /// let guard = redlock.lock("order:42").await?;
    /// tokio::select! {
    ///     reason = guard.lost() => println!("stopped: {reason}"),
    ///     () = work() => println!("done"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches, and can be called again. It returns at once if the lock is already lost.
    pub async fn lost(&self) -> LossReason {
        self.held.lost().await
    }

    /// Does work while the lock is held, and drops it when the lock is lost.
    ///
    /// The work is not polled any more once the clock shows the end, even if the process was stopped and the timers have not
    /// noticed.
    pub(crate) async fn protect<T>(&self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        let mut work = pin!(work);
        let work_while_valid = poll_fn(|cx| {
            if self.is_valid() {
                work.as_mut().poll(cx)
            } else {
                Poll::Pending // the loss wakes the task
            }
        });
        tokio::select! {
            biased;
            reason = self.lost() => Err(reason),
            result = work_while_valid => {
                if self.is_valid() {
                    Ok(result)
                } else {
                    Err(self.lost().await)
                }
            }
        }
    }

    /// Extends the lock so that it is valid for one full ttl from now, less the drift allowance. Background renewal
    /// does the same at intervals.
    ///
    /// An extension never shortens the validity. It costs one round trip to the majority. This call joins an
    /// extension that is under way.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// tokio::time::advance(Duration::from_secs(3)).await;
    /// guard.extend().await?;
    /// assert!(guard.remaining() > Duration::from_secs(9));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an extension that was started goes on without its caller.
    ///
    /// # Errors
    ///
    /// After [`ExtendError::NoQuorum`] and [`ExtendError::MaxHold`] the lock is still held, and after
    /// [`ExtendError::Lost`] and [`ExtendError::Released`] it is not.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        self.extend_by(self.handle().own_ttl()).await
    }

    /// Extends the lock so that it is valid for `ttl` from now, less the drift allowance. Use it before a step that
    /// must not be interrupted, for example.
    ///
    /// The `ttl` is in whole milliseconds, rounded down. It must exceed the drift allowance (with the default, 3 ms is
    /// enough), and must not exceed [`max_ttl`](crate::RedlockBuilder::max_ttl). An extension never shortens the
    /// validity.
    ///
    /// Renewal goes on with the lock's own ttl, and never shortens the validity either. While renewal is on, a `ttl`
    /// shorter than the lock's own ttl has no more effect than that. If the holder crashes, other clients wait until
    /// this extension ends.
    ///
    /// Costs one round trip to the majority. Joins an extension by at least this ttl that is under way.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").ttl(Duration::from_secs(2)).await?;
    /// guard.extend_for(Duration::from_secs(8)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an extension that was started goes on without its caller.
    ///
    /// # Errors
    ///
    /// Fails with [`ExtendError::InvalidTtl`], and changes nothing, if the ttl is out of this range. Fails like
    /// [`extend`](Self::extend) otherwise.
    pub async fn extend_for(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.handle().check_ttl(ttl);
        self.extend_by(ttl.map_err(ExtendError::InvalidTtl)?).await
    }

    pub(crate) async fn extend_by(&self, ttl: Ttl) -> Result<(), ExtendError> {
        let outcome = self.held.extend_for(ttl).await;
        self.judge(outcome)
    }

    pub(crate) fn judge(&self, outcome: ExtensionOutcome) -> Result<(), ExtendError> {
        match outcome {
            ExtensionOutcome::Extended => Ok(()),
            ExtensionOutcome::Failed => Err(ExtendError::NoQuorum {
                remaining: self.remaining(),
                nodes: self.handle().reports(),
            }),
            ExtensionOutcome::MaxHold => Err(ExtendError::MaxHold {
                remaining: self.remaining(),
            }),
            ExtensionOutcome::Lost(reason) => Err(ExtendError::Lost(reason)),
            ExtensionOutcome::Released => Err(ExtendError::Released),
        }
    }

    /// Returns the key with its prefix. Returns the first key if the lock has several.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.handle().keys().first()
    }

    /// Returns all keys with their prefix, in order and without repetitions.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock_all(["b", "a", "b"]).await?;
    /// let keys: Vec<_> = guard.keys().map(|key| key.as_bytes()).collect();
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.handle().keys().iter()
    }

    /// Returns the fencing token, if the lock was acquired [with one](crate::LockOptions::fenced).
    ///
    /// Send the token with every write to a resource that refuses smaller tokens than it has seen, such as
    /// `UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`. Then a holder that was paused and
    /// does not notice the loss of its lock cannot overwrite a later holder's value. The comparison is `<=` and not
    /// `<`, so that one holder can write several times.
    ///
    /// If the new value depends on the old one, store the token *before* you read the old value (`UPDATE account SET
    /// fence = $2 WHERE id = $3 AND fence <= $2`). Otherwise a late write could come between a later holder's read and
    /// its write. The program `fenced` in `examples` does this.
    ///
    /// The token of a lock of [several keys](crate::Redlock::lock_all) fences each of them. A transfer between two
    /// accounts stores it in both rows, in one transaction, and goes on only if both rows have accepted it:
    ///
    /// ```sql
    /// BEGIN;
    /// UPDATE account SET fence = $1 WHERE id IN (7, 3) AND fence <= $1; -- 2 rows, otherwise ROLLBACK
    /// COMMIT;
    /// -- read both balances, decide, and then:
    /// BEGIN;
    /// UPDATE account SET balance = balance - $2, fence = $1 WHERE id = 7 AND fence <= $1; -- 1 row, otherwise ROLLBACK
    /// UPDATE account SET balance = balance + $2, fence = $1 WHERE id = 3 AND fence <= $1; -- 1 row, otherwise ROLLBACK
    /// COMMIT;
    /// ```
    ///
    /// A deposit to account 3 must be fenced as well, by `lock("account:3").fenced(true)`. If it is not, it does not
    /// notice the transfer, nor does the transfer notice a late deposit.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// # let mut stored_fence = 0;
    /// let guard = redlock.lock("account:7").fenced(true).await?;
    /// let token = guard.fencing_token().expect("the lock is fenced");
    /// assert!(stored_fence <= token.get()); // what the resource checks
    /// stored_fence = token.get();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.handle().fence()
    }

    /// Returns the slot of the [semaphore](crate::Redlock::semaphore) that this permit is: 0 to the number of permits, less
    /// one. `None` if the lock is no permit. No two clients have the same slot at once.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.handle().slot().map(Slot::index)
    }

    /// Returns whether this is the lock of a [reader](crate::RedlockRwLock::read), which others share, or of a writer that was
    /// [downgraded](crate::LockGuard::downgrade) to one.
    #[must_use]
    pub fn is_reader(&self) -> bool {
        self.handle().is_reader()
    }

    /// Returns the random part of the [value](Self::value).
    ///
    /// Holders to which the lock was [handed over](crate::RedlockBuilder::handover_for) within this process have the same
    /// value. This is *not* a fencing token: it has no order.
    #[must_use]
    pub fn token(&self) -> Token {
        self.handle().token()
    }

    /// Returns the value that the keys have on the nodes while the lock is held: the [token](Self::token), and the
    /// [name](crate::RedlockBuilder::client_name) of this client. A script on one of the nodes can compare with it.
    /// Readers have such a value each, in the set beside the key.
    #[must_use]
    pub fn value(&self) -> String {
        let client = &self.handle().client().client_name;
        String::from_utf8_lossy(&client.value_of(self.token())).into_owned()
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.held.handle()
    }

    pub(crate) fn held(&self) -> &HeldLease {
        &self.held
    }

    pub(crate) fn held_mut(&mut self) -> &mut HeldLease {
        &mut self.held
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish()
    }
}
