use super::nodes::NodeUrls;
use crate::{BuildError, Redlock, RedlockBuilder};

/// Ways to make a [`Redlock`].
impl Redlock {
    /// Connects to the nodes at these URLs, with default settings. [`RedlockBuilder::nodes`] lists the forms of a URL.
    ///
    /// Succeeds even if all of them are down: locks fail with [`LockError::NoQuorum`](crate::LockError::NoQuorum)
    /// until a majority is up. [`ready`](Self::ready) waits for a majority.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::connect("redis+cluster://a:7000,b:7000,c:7000").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The `Redlock` belongs to the runtime that calls this: [`RedlockBuilder::build`] says what follows.
    ///
    /// # Errors
    ///
    /// [`RedlockBuilder::build`] lists the errors, and how long it takes to connect.
    pub async fn connect<Kind>(urls: impl NodeUrls<Kind>) -> Result<Self, BuildError> {
        Self::builder().nodes(urls).build().await
    }

    /// Creates a lock service over five nodes in the memory of this process: for first steps, for tests, and for
    /// services that run as a single process.
    ///
    /// It belongs to the runtime that calls this: [`RedlockBuilder::build`] says what follows. Its clock is tokio's clock, so on
    /// a paused runtime hours pass in a moment:
    ///
    /// ```
    /// # use redlock_tokio::{LossReason, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// tokio::time::sleep(Duration::from_secs(3600)).await;
    /// assert!(!guard.is_valid()); // longer than max_hold
    /// assert_eq!(guard.lost().await, LossReason::MaxHold);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails outside a tokio runtime.
    pub async fn embedded() -> Result<Self, BuildError> {
        Self::builder().embedded().build().await
    }

    /// Returns a builder, which sets nodes, prefix and default options.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }
}
