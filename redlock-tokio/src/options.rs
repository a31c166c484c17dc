mod error;
mod queue_policy;
mod resolve;
mod waiter_limit;

use std::time::Duration;

use redlock_core::{Drift, PollerShare};

pub use self::error::OptionsError;
pub(crate) use self::queue_policy::QueuePolicy;
pub use self::waiter_limit::WaiterLimit;

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
/// | [`retry_delay`](Self::retry_delay) | 20 to 200 ms | the random delay between attempts |
/// | [`renew_every`](Self::renew_every) | ttl / 3 | how often a held lock is extended |
/// | [`max_hold`](Self::max_hold) | 60 s | for how long it is extended |
/// | [`drift`](Self::drift) | ttl / 100 + 2 ms | how far clocks may differ |
/// | [`max_waiters_per_key`](Self::max_waiters_per_key) | 1024 | how many requests may wait for a key in this process |
/// | [`refuse_long_waits`](Self::refuse_long_waits) | no | whether to fail at once if the expected wait exceeds `wait` |
/// | [`fail_fast`](Self::fail_fast) | no | whether to fail within a moment in an outage |
/// | [`handover_for`](Self::handover_for) | 30 ms | for how long the lock is handed over within this process |
/// | [`max_handovers`](Self::max_handovers) | none | how often it is handed over in a row |
/// | [`fenced`](Self::fenced) | no | whether the lock has a fencing token |
/// | [`poller_share`](Self::poller_share) | 4 % | for how much of the time a busy lock is left to clients that poll |
/// | [`label`](Self::label) | none | the name of the lock's purpose in the log |
///
/// # Shortcuts
///
/// Six options have shortcuts, because programs set them most often: [`ttl`](Self::ttl), [`wait`](Self::wait),
/// [`max_hold`](Self::max_hold), [`fenced`](Self::fenced),
/// [`max_waiters_per_key`](Self::max_waiters_per_key) and [`label`](Self::label). All builders have all six: [`Lock`](crate::Lock) for one
/// lock, [`RedlockBuilder`](crate::RedlockBuilder) for the default of all locks, and the `LockLayer`s of
/// `redlock-tower` and `redlock-axum` for the locks of a layer. Every other option is set through the method
/// `options`, which these builders have too:
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
    drift: Option<Drift>,
    max_waiters_per_key: Option<usize>,
    long_waits: Option<LongWaits>,
    outages: Option<Outages>,
    handover: Option<Handover>,
    handover_for: Option<Duration>,
    max_handovers: Option<u32>,
    fenced: bool,
    poller_share: Option<PollerShare>,
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
enum Outages {
    Refused,
    WaitedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LongWaits {
    Refused,
    Allowed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handover {
    Allowed,
    Never,
}

impl LockOptions {
    /// Creates options of which none is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time to live of the keys: how long other clients wait for a holder that crashed. In whole
    /// milliseconds, rounded down.
    ///
    /// At least 3 ms with the default drift. At most [`max_ttl`](crate::RedlockBuilder::max_ttl), which is the
    /// builder's default ttl unless it is set. Embedded nodes, and nodes that are trusted when fresh, have no
    /// `max_ttl`: there the limit is 100 years.
    ///
    /// The lock of a live holder is renewed, so the ttl need not be as long as the work takes. Choose it much
    /// longer than a round trip and than the pauses of the process.
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

    /// Sets the total time to wait for the lock, for holders in this process and in others.
    ///
    /// Zero means one attempt, or none if a task of this process already holds the lock or waits for it.
    /// [`Duration::MAX`] means no limit. The first attempt always runs to its end, so silent nodes can delay the
    /// error by their [timeout](crate::RedlockBuilder::node_timeout). Later attempts end when this time is over. A
    /// request that leaves the key to other processes first makes its first attempt when this time is over at the
    /// latest, unless another client has the key then.
    ///
    /// ```
    /// # use redlock_tokio::{LockError, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let second = redlock.lock("order:42").wait(Duration::from_secs(2));
    /// assert!(matches!(second.await, Err(LockError::Contended(_)))); // after 2 s
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "timeout")]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets an upper bound of [`wait`](Self::wait), for a caller that gives up after this time. The shortest of
    /// several bounds counts.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// # let guard = redlock.lock("order:42").await?;
    /// let bounded = LockOptions::new().wait_at_most(Duration::from_secs(1));
    /// let lock = redlock.lock("order:42").wait(Duration::MAX).options(bounded);
    /// assert!(lock.await.is_err()); // after 1 s
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_at_most(mut self, bound: Duration) -> Self {
        let bound = self.wait_at_most.map_or(bound, |it| it.min(bound));
        self.wait_at_most = Some(bound);
        self
    }

    /// Sets the number of attempts within the waiting time. Zero counts as one.
    ///
    /// A look whether the lock is free, every [`retry_delay`](Self::retry_delay), counts as an attempt.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = [MemoryNode::new()];
    /// let one = Redlock::builder().custom_nodes(nodes.clone()).build().await?;
    /// let other = Redlock::builder().custom_nodes(nodes).build().await?;
    /// let guard = one.lock("order:42").await?;
    /// let once = LockOptions::new().max_attempts(1);
    /// let error = other.lock("order:42").options(once).await.unwrap_err();
    /// assert!(error.is_contended()); // at once, not after 5 s
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the range of the random delay before each further attempt, where nodes send no notifications. The
    /// shortest delay must not be zero.
    ///
    /// Servers that speak RESP3 and [`MemoryNode`](crate::MemoryNode)s send a notification when a lock is free. There
    /// the next attempt begins as soon as the lock is free on a majority of the nodes, and this delay is the
    /// interval at which a waiter looks whether it has missed a notification.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let (shortest, longest) = (Duration::from_millis(5), Duration::from_millis(50));
    /// let options = LockOptions::new().retry_delay(shortest, longest);
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_delay(mut self, shortest: Duration, longest: Duration) -> Self {
        self.retry_delay = Some(RetryDelay { shortest, longest });
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

    /// Turns extension in the background off. The lock is lost after its ttl, unless the holder
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

    /// Sets the allowance for clocks that run at different rates. The validity of a lock ends this much before its
    /// keys expire.
    ///
    /// ```
    /// # use redlock_tokio::{Drift, LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let drift = Drift::new(50, Duration::from_millis(5)); // 5 % and 5 ms
    /// let options = LockOptions::new().drift(drift);
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// assert!(guard.remaining() <= Duration::from_millis(10_000 - 505));
    /// # Ok(())
    /// # }
    /// ```
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = Some(drift);
        self
    }

    /// Sets how many requests may wait for a key in this process. Further requests fail at once with
    /// [`LockError::QueueFull`](crate::LockError::QueueFull). A request for several keys waits for each of them.
    ///
    /// [`max_waiters_total`](crate::RedlockBuilder::max_waiters_total) limits the requests for all keys together.
    ///
    /// ```
    /// # use redlock_tokio::{LockError, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let second = redlock.lock("order:42").max_waiters_per_key(0);
    /// assert!(matches!(second.await, Err(LockError::QueueFull { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiters_per_key(mut self, waiters: usize) -> Self {
        self.max_waiters_per_key = Some(waiters);
        self
    }

    /// Fails at once with [`LockError::WaitTooLong`](crate::LockError::WaitTooLong) if the expected wait in this
    /// process exceeds [`wait`](Self::wait).
    ///
    /// The estimate assumes that each earlier request holds the lock only as long as the shortest of the last eight
    /// holds. No request is refused until eight holds are known, and one of them has ended since the queue was last
    /// empty.
    ///
    /// This option suits locks whose holds take about the same time. Where holds differ, several long holds in a
    /// row make it refuse requests that would have got the lock. So it is off by default.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().refuse_long_waits();
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse_long_waits(mut self) -> Self {
        self.long_waits = Some(LongWaits::Refused);
        self
    }

    /// Fails within a moment with [`LockError::NoQuorum`](crate::LockError::NoQuorum) or
    /// [`LockError::Quarantined`](crate::LockError::Quarantined) if no majority of the nodes can vote within
    /// [`wait`](Self::wait). Otherwise each request waits that long before it fails, and in an outage they pile up.
    ///
    /// It is known that a node cannot vote
    ///
    /// - if an attempt to connect has failed since the request began, or takes longer than the
    ///   [`node_timeout`](crate::RedlockBuilder::node_timeout);
    /// - if the node refused the last request to set a key, for a second;
    /// - until its quarantine ends.
    ///
    /// So a request in an outage waits for an attempt to connect, which takes up to twice the `node_timeout`: 0.1 s by
    /// default. All requests share these attempts. A request with a shorter `wait` takes its whole wait.
    ///
    /// A connection that has just been lost, and a node that does not answer a request, may be back in a moment, so a
    /// request may still wait in the first second of an outage. A request may also fail in the first second after an
    /// outage, if the node refused a lock just before, or the attempt to connect had begun before and hangs (for up to
    /// the [`connect_timeout`](crate::RedlockBuilder::connect_timeout)).
    ///
    /// The option is off by default, because a job would rather wait. The layer of `redlock-axum` turns it on, because
    /// a client over HTTP would rather know. A layer with `fail_open` ignores it.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = MemoryNode::new();
    /// node.set_down(true);
    /// let redlock = Redlock::builder().custom_nodes([node]).build().await?;
    /// let options = LockOptions::new().fail_fast();
    /// let error = redlock.lock("order:42").options(options).await.unwrap_err();
    /// assert_eq!(error.attempts().unwrap().count, 0); // it did not even try
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_fast(mut self) -> Self {
        self.outages = Some(Outages::Refused);
        self
    }

    /// Waits even if no majority of the nodes can vote. This is the default.
    pub fn no_fail_fast(mut self) -> Self {
        self.outages = Some(Outages::WaitedOut);
        self
    }

    /// Waits even if the expected wait exceeds the limit. This is the default.
    pub fn allow_long_waits(mut self) -> Self {
        self.long_waits = Some(LongWaits::Allowed);
        self
    }

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

    /// Acquires the lock with a [fencing token](crate::Hold::fencing_token), for a resource that refuses writes
    /// with a smaller token than it has seen. Without such a resource the token is of no use.
    ///
    /// Costs one round trip if the nodes' counters are behind this machine's wall clock, and one or two more
    /// otherwise. Each node keeps a counter for the key as `redlock:fence:{<key>}` (or with another tag, see the
    /// README). A node that has something else there [gives no vote](crate::NodeError::NotACounter).
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
    /// The ttl of a fenced lock may be twelve hours at most.
    ///
    /// A lock of several keys has one token for all of them: it is larger than the tokens of all earlier locks of each key.
    ///
    /// Fence *all* locks of a resource, or none. A holder without a token cannot be told from a late one: a resource
    /// that accepts its writes accepts them late as well, and they may overwrite what a holder with a token has written.
    /// If the builder has set this option, a single lock cannot turn it off.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let first = redlock.lock("order:42").fenced().await?.fencing_token();
    /// let second = redlock.lock("order:42").fenced().await?.fencing_token();
    /// assert!(first.is_some() && first < second);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
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
            drift: self.drift.or(fallback.drift),
            max_waiters_per_key: self.max_waiters_per_key.or(fallback.max_waiters_per_key),
            long_waits: self.long_waits.or(fallback.long_waits),
            outages: self.outages.or(fallback.outages),
            handover: self.handover.or(fallback.handover),
            handover_for: self.handover_for.or(fallback.handover_for),
            max_handovers: self.max_handovers.or(fallback.max_handovers),
            fenced: self.fenced || fallback.fenced,
            poller_share: self.poller_share.or(fallback.poller_share),
            label: self.label.or(fallback.label),
        }
    }
}
