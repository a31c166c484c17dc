use std::time::Duration;

use redlock_core::PollerShare;

use super::{Handover, LockOptions};

/// How the lock goes from holder to holder.
impl LockOptions {
    /// Sets how long holders within this process may pass the lock on before it is released for other processes.
    /// The default is 30 ms. A value above half the ttl counts as half the ttl.
    ///
    /// While no other process wants the lock, this time grows up to fivefold, but it does not grow beyond 100 ms.
    ///
    /// The change to another process takes some round trips, in which no client holds the lock. So a longer time
    /// keeps the lock busier, and makes other processes wait longer.
    ///
    /// The next holder must already wait, with the same ttl, renewal and longest hold, and both locks must be without
    /// a [fencing token](Self::fenced). A holder that panics releases the lock and does not hand it over.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock, ReleaseOutcome};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().handover_for(Duration::from_millis(100));
    /// let first = redlock.lock("order:42").options(options).await?;
    /// let second = redlock.lock("order:42").options(options).into_future();
    /// let second = tokio::spawn(second);
    /// tokio::task::yield_now().await; // now `second` waits
    /// assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    /// assert!(second.await??.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn handover_for(mut self, turn: Duration) -> Self {
        self.handover = Some(Handover::Allowed);
        self.handover_for = Some(turn);
        self
    }

    /// Sets how often in a row the lock may be handed over within this process.
    pub fn max_handovers(mut self, handovers: u32) -> Self {
        self.max_handovers = Some(handovers);
        self
    }

    /// Releases the lock on the nodes each time, even if other requests wait in this process.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock, ReleaseOutcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().no_handover();
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// # let _waiter = tokio::spawn(redlock.lock("order:42").into_future());
    /// # tokio::task::yield_now().await;
    /// assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_handover(mut self) -> Self {
        self.handover = Some(Handover::Never);
        self
    }

    /// Sets the share of time, in percent, for which a busy process pauses so that clients that poll can get the
    /// lock. 4 by default. More than 50 counts as 50, and 0 turns the pauses off. A pause lasts 8 ms or 160 ms.
    ///
    /// Clients that get notifications (processes of this crate over RESP3) need no pauses. The pauses are for clients
    /// that poll: this crate over RESP2 and over your own pools, and all libraries of other languages. A client that
    /// polls at the interval `d` gets a busy lock after about `d / share` on average: 100 ms / 4 % = 2.5 s.
    ///
    /// Choose a larger share if many such clients share locks with busy processes of this crate. The pauses cost this
    /// share of the throughput, and a quarter of it while no other client comes. A waiter whose time is nearly over
    /// does not pause.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().poller_share(20);
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn poller_share(mut self, percent: u8) -> Self {
        self.poller_share = Some(PollerShare::percent(percent));
        self
    }
}
