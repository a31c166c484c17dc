use std::time::Duration;

use redlock_core::Drift;

use super::RedlockBuilder;

/// Settings of all locks.
impl RedlockBuilder {
    /// Sets the allowance for clocks that run at different rates. The validity of a lock ends this much before its
    /// keys expire. A hundredth of the ttl and 2 ms by default.
    ///
    /// ```
    /// # use redlock_tokio::{Drift, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let drift = Drift::new(50, Duration::from_millis(5)); // 5 % and 5 ms
    /// let redlock = Redlock::builder().embedded().drift(drift).build().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// assert!(guard.remaining() <= Duration::from_millis(10_000 - 505));
    /// # Ok(())
    /// # }
    /// ```
    pub fn drift(mut self, drift: Drift) -> Self {
        self.common.drift = drift;
        self
    }

    /// Sets how long holders within this process may pass the lock on before it is released for other processes.
    /// The default is 30 ms. A value above half the ttl counts as half the ttl.
    ///
    /// Within it, a process serves those that waited when it got the lock, and goes on for four to ten times as long as it
    /// took to get it. If no other process waits then, it goes on without a release, for as long as that is so.
    ///
    /// The next holder must already wait, with the same ttl, renewal and longest hold, and both locks must be without
    /// a [fencing token](crate::LockOptions::fenced). A holder that panics releases the lock and does not hand it over.
    ///
    /// ```
    /// # use redlock_tokio::{Redlock, ReleaseOutcome};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().embedded().handover_for(Duration::from_millis(100));
    /// let redlock = builder.build().await?;
    /// let first = redlock.lock("order:42").await?;
    /// let second = redlock.lock("order:42").into_future();
    /// let second = tokio::spawn(second);
    /// tokio::task::yield_now().await; // now `second` waits
    /// assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    /// assert!(second.await??.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn handover_for(mut self, time: Duration) -> Self {
        self.common.handover_for = time;
        self
    }

    /// Sets the share of time, in percent, for which a busy process leaves the lock free for clients that stand in no line:
    /// other libraries, and requests with [`max_attempts`](crate::LockOptions::max_attempts). 4 by default. More than 50
    /// counts as 50, and 0 turns the pauses off. A pause lasts 8 ms.
    ///
    /// A client that polls at the interval `d` gets a busy lock after about `d / share` on average: 100 ms / 4 % = 2.5 s.
    /// Processes of this crate need no pauses, whether they are notified or poll, since they stand in a line.
    ///
    /// Choose a larger share if many such clients share locks with busy processes of this crate. The pauses cost this
    /// share of the throughput.
    pub fn poller_share(mut self, percent: u8) -> Self {
        self.common.poller_share = percent.min(50);
        self
    }
}
