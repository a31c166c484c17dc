mod error;
mod queue_policy;
mod resolve;
mod waiting;

use std::time::Duration;

pub(crate) use self::queue_policy::{CommonSettings, QueuePolicy};
pub use self::{error::OptionsError, queue_policy::WaiterLimit};

/// The options of a lock: how it is acquired, kept and handed over.
///
/// An option that is not set falls back to what the [builder](crate::RedlockBuilder) was given, and then to the
/// default in this table.
///
/// | option | default | meaning |
/// |---|---|---|
/// | [`ttl`](Self::ttl) | 10 s | how long other clients wait for a holder that crashed |
/// | [`wait`](Self::wait) | 5 s | how long to wait for the lock |
/// | [`wait_at_most`](Self::wait_at_most) | none | an upper bound of `wait` |
/// | [`max_attempts`](Self::max_attempts) | none | how often to try within that time |
/// | [`retry_delay`](Self::retry_delay) | 20 to 200 ms | the random delay between attempts, where nodes send no notifications |
/// | [`renew_every`](Self::renew_every) | ttl / 3 | how often a held lock is extended |
/// | [`max_hold`](Self::max_hold) | 60 s | for how long it is extended |
/// | [`max_waiters_per_key`](Self::max_waiters_per_key) | 1024 | how many requests may wait for a key in this process |
/// | [`fail_fast`](Self::fail_fast) | no | whether to fail within a moment in an outage |
/// | [`handover`](Self::handover) | yes | whether a release passes the lock on to others that wait in this process |
/// | [`fenced`](Self::fenced) | no | whether the lock has a fencing token |
/// | [`label`](Self::label) | none | the name of the lock's purpose in the log |
///
/// # Shortcuts
///
/// Six options have shortcuts, because programs set them most often: [`ttl`](Self::ttl), [`wait`](Self::wait),
/// [`max_hold`](Self::max_hold), [`fenced`](Self::fenced), [`max_waiters_per_key`](Self::max_waiters_per_key) and
/// [`label`](Self::label). All builders have all six: [`Lock`](crate::Lock) for one lock,
/// [`RedlockBuilder`](crate::RedlockBuilder) for the default of all locks, and the `LockLayer`s of `redlock-tower` and
/// `redlock-axum` for the locks of a layer. A [`Lock`](crate::Lock) also has [`max_attempts`](Self::max_attempts) and
/// [`retry_delay`](Self::retry_delay). Every other option is set through the method `options`, which all these builders
/// have too:
///
/// ```
/// # use redlock_tokio::{LockOptions, Redlock};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// let patient = LockOptions::new()
///     .wait(Duration::from_secs(60))
///     .retry_delay(Duration::from_millis(100), Duration::from_secs(1));
/// let guard = redlock.lock("order:42").options(patient).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    ttl: Option<Duration>,
    wait: Option<Duration>,
    wait_at_most: Option<Duration>,
    max_attempts: Option<u32>,
    retry_delay: Option<RetryDelay>,
    renewal: Option<Renewal>,
    max_hold: Option<Duration>,
    max_waiters_per_key: Option<usize>,
    fail_fast: Option<Switch>,
    handover: Option<Switch>,
    fencing: Option<Switch>,
    label: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryDelay {
    shortest: Duration,
    longest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Every(Duration),
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

impl LockOptions {
    /// Creates options without setting any.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time to live of the keys: how long other clients wait for a holder that crashed. In whole
    /// milliseconds, rounded down.
    ///
    /// At least 3 ms with the default drift. At most [`max_ttl`](crate::RedlockBuilder::max_ttl), which is the
    /// builder's default ttl unless it is set.
    ///
    /// The lock of a live holder is renewed, so the ttl need not be as long as the work takes. Choose a ttl that is
    /// much longer than a round trip and than any pause of the process.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").ttl(Duration::from_secs(2)).await?;
    /// assert!(guard.remaining() < Duration::from_secs(2)); // less the drift allowance
    /// # Ok(())
    /// # }
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how often a held lock is extended in the background. The interval must be shorter than the ttl minus
    /// the drift.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new()
    ///     .ttl(Duration::from_secs(10))
    ///     .renew_every(Duration::from_secs(2));
    /// redlock.check(options)?;
    /// assert!(redlock.check(options.renew_every(Duration::from_secs(10))).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.renewal = Some(Renewal::Every(interval));
        self
    }

    /// Turns off extension in the background. The lock is lost after its ttl, unless the holder
    /// [extends](crate::Hold::extend) it.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, LossReason, Redlock};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().no_renewal();
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// assert_eq!(guard.lost().await, LossReason::Expired); // after the ttl
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_renewal(mut self) -> Self {
        self.renewal = Some(Renewal::Never);
        self
    }

    /// Sets for how long a held lock is extended, in the background or by its holder. [`Duration::MAX`] means no
    /// limit.
    ///
    /// No extension starts later than this time after the lock was acquired. So a holder that hangs keeps other
    /// clients out for at most this time and one ttl.
    ///
    /// ```
    /// # use redlock_tokio::{LossReason, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("report").max_hold(Duration::from_secs(3600)).await?;
    /// tokio::time::sleep(Duration::from_secs(3600)).await;
    /// assert!(guard.is_valid());
    /// assert_eq!(guard.lost().await, LossReason::MaxHold); // within one ttl
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets whether the lock is handed over to the next request that waits in this process, without a release on the
    /// nodes. True by default. See [`handover_for`](crate::RedlockBuilder::handover_for).
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock, ReleaseOutcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().handover(false);
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// # let _waiter = tokio::spawn(redlock.lock("order:42").into_future());
    /// # tokio::task::yield_now().await;
    /// assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn handover(mut self, handover: bool) -> Self {
        self.handover = Some(handover.into());
        self
    }

    /// Sets whether the lock has a [fencing token](crate::Hold::fencing_token), for a resource that refuses writes with
    /// a smaller token than it has seen. False by default. Without such a resource the token is of no use.
    ///
    /// Costs one round trip if the nodes' counters are behind this machine's wall clock, and one or two more
    /// otherwise. Each node keeps a counter for the key as `redlock:fence:{<key>}` (or with another tag, see the
    /// [guide](crate::guide::first_lock#fencing-counters)). A node that has something else there [gives no vote](crate::NodeError::NotACounter).
    ///
    /// A counter takes some 130 bytes on each node, and expires [a day](crate::FencingToken::COUNTER_LIFETIME) after the
    /// last lock of its key. If clients choose the keys, plan for the keys of a day: ten million are 1.3 GB. A node
    /// without free memory grants no lock.
    ///
    /// After a day, tokens still grow if the machines' wall clocks differ by less than a day less the ttl. If a node
    /// loses its counter and the key in a restart while the lock is held, renewal restores both. If nodes lose their
    /// counters while nobody holds the lock, tokens still grow as long as wall clocks differ by less than
    /// [`max_ttl`](crate::RedlockBuilder::max_ttl). If the clock of a machine is far ahead once, its tokens are larger
    /// than those that come after such a loss, and the resource refuses these until you reset the token that it stored.
    ///
    /// The ttl of a fenced lock may be at most twelve hours. [Readers](crate::RedlockRwLock::read) get no token, even if this
    /// is the default.
    ///
    /// A lock of several keys has one token for all of them: it is larger than the tokens of all earlier locks of each key.
    ///
    /// Fence *all* locks of a resource, or none. A holder without a token cannot be told from a late one: a resource
    /// that accepts its writes accepts them late as well, and they may overwrite what a holder with a token has written.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let first = redlock.lock("order:42").fenced(true).await?.fencing_token();
    /// let second = redlock.lock("order:42").fenced(true).await?.fencing_token();
    /// assert!(first.is_some() && first < second);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.fencing = Some(fenced.into());
        self
    }

    /// Sets what the lock is for, as the log names it: the field `label` of each line about this lock.
    ///
    /// Lines without a label name a lock only by its [token](crate::Hold::token). The log has no keys, which often
    /// contain personal data, unless the builder [allows it](crate::RedlockBuilder::log_keys). A label is for all locks
    /// of one kind, so it is part of the program, and cannot be made from a key.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").label("orders").await?;
    /// // WARN redlock: a lock was lost label="orders" token=.. reason=..
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn label(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }

    /// Returns these options, with options that are not set taken from `fallback`.
    ///
    /// ```
    /// # use redlock_tokio::LockOptions;
    /// # use std::time::Duration;
    /// let (one, two) = (Duration::from_secs(1), Duration::from_secs(2));
    /// let fallback = LockOptions::new().ttl(one).wait(one);
    /// let options = LockOptions::new().wait(two).or(fallback);
    /// assert_eq!(options, LockOptions::new().ttl(one).wait(two));
    /// ```
    pub fn or(self, fallback: Self) -> Self {
        Self {
            ttl: self.ttl.or(fallback.ttl),
            wait: self.wait.or(fallback.wait),
            wait_at_most: match (self.wait_at_most, fallback.wait_at_most) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            max_attempts: self.max_attempts.or(fallback.max_attempts),
            retry_delay: self.retry_delay.or(fallback.retry_delay),
            renewal: self.renewal.or(fallback.renewal),
            max_hold: self.max_hold.or(fallback.max_hold),
            max_waiters_per_key: self.max_waiters_per_key.or(fallback.max_waiters_per_key),
            fail_fast: self.fail_fast.or(fallback.fail_fast),
            handover: self.handover.or(fallback.handover),
            fencing: self.fencing.or(fallback.fencing),
            label: self.label.or(fallback.label),
        }
    }
}
