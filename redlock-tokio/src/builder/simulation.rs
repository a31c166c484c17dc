use std::time::Duration;

use crate::{RedlockBuilder, engine::wall_clock::WallClock, random::Random};

/// Replaces what differs in each run, for simulations.
///
/// With a [`clock`](Self::clock), a [`random_seed`](Self::random_seed) and a [`wall_clock`](Self::wall_clock) of the
/// test, a run over [nodes in memory](Self::custom_nodes) on a paused `current_thread` runtime repeats itself exactly.
impl RedlockBuilder {
    /// Draws all random numbers from a generator with this seed. From the operating system by default.
    ///
    /// *For simulations only*: anybody who knows the seed can predict the tokens of all locks, and can delete their
    /// keys. Give each [`Redlock`](crate::Redlock) over the same nodes a seed of its own: equal seeds make equal
    /// tokens, and one holder would take the key of another for its own.
    ///
    /// The tokens depend on the seed, and so do the pauses before retries and reconnections, and which rarely used
    /// keys a `Redlock` forgets.
    ///
    /// ```
    /// use redlock_tokio::{Clock, MemoryNode, Redlock};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tokens = Vec::new();
    /// for seed in [7, 7, 8] {
    ///     let node = MemoryNode::new();
    ///     let builder = Redlock::builder().custom_nodes([node.clone()]).clock(Clock::tokio());
    ///     let redlock = builder.random_seed(seed).build().await?;
    ///     let _guard = redlock.lock("order:42").await?;
    ///     tokens.push(node.value("order:42"));
    /// }
    /// assert_eq!(tokens[0], tokens[1]);
    /// assert_ne!(tokens[0], tokens[2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn random_seed(mut self, seed: u64) -> Self {
        self.random = Random::seeded(seed);
        self
    }

    /// Sets the wall clock, which [fencing tokens](crate::LockOptions::fenced) and
    /// [fire times](crate::Redlock::once) follow: `now` returns the time since
    /// the start of 1970. The system's by default.
    ///
    /// For simulations of wall clocks that are wrong, differ between processes, or are set while the process runs.
    /// The clock may go backwards. `now` is called on any thread, at each request for a fenced lock. It must not block,
    /// and must not use the [`Redlock`](crate::Redlock).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redlock_tokio::{Clock, MemoryNode, Redlock};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().custom_nodes([MemoryNode::new()]).clock(Clock::tokio());
    /// let year_2000 = Duration::from_secs(946_684_800);
    /// let redlock = builder.wall_clock(move || year_2000).build().await?;
    ///
    /// let guard = redlock.lock("order:42").fenced(true).await?;
    /// let token = guard.fencing_token().expect("a fenced lock");
    /// assert_eq!(token.get(), 946_684_800_000_000); // in microseconds
    /// # Ok(())
    /// # }
    /// ```
    pub fn wall_clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.wall_clock = WallClock::new(now);
        self
    }
}
