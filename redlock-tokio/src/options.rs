mod queue_policy;

use std::time::Duration;

use redlock_core::{
    Drift, KeepAlive, KeepAliveError, LeaseConfig, PollerShare, Quorum, RetrySchedule,
    RetryScheduleError, Ttl, TtlError, Validity, ValidityError,
};
use thiserror::Error;

pub(crate) use self::queue_policy::QueuePolicy;

/// The options of a lock: how it is acquired, kept and handed over.
///
/// An option that is not set falls back to what the [builder](crate::RedlockBuilder) was given, and then to the
/// default in this table.
///
/// | option | default | meaning |
/// |---|---|---|
/// | [`ttl`](Self::ttl) | 10 s | what a crashed holder costs the others |
/// | [`wait`](Self::wait) | 5 s | how long to wait for the lock |
/// | [`wait_at_most`](Self::wait_at_most) | none | a bound to that |
/// | [`max_attempts`](Self::max_attempts) | none | how often to try within that |
/// | [`retry_delay`](Self::retry_delay) | 20 to 200 ms | the random delay between attempts |
/// | [`renew_every`](Self::renew_every) | ttl / 3 | how often a held lock is extended |
/// | [`max_hold`](Self::max_hold) | 60 s | for how long it is extended |
/// | [`drift`](Self::drift) | ttl / 100 + 2 ms | how far clocks may differ |
/// | [`max_waiters_per_key`](Self::max_waiters_per_key) | 1024 | how many may wait for a key in this process |
/// | [`refuse_long_waits`](Self::refuse_long_waits) | no | whether to refuse at once if the expected wait exceeds the limit |
/// | [`handover_for`](Self::handover_for) | 20 ms | for how long the lock goes from one to the next in this process |
/// | [`max_handovers`](Self::max_handovers) | none | how often it does |
/// | [`fenced`](Self::fenced) | no | whether the lock has a fencing token |
/// | [`poller_share`](Self::poller_share) | 4 % | how much of the time a busy lock is left to clients that poll |
///
/// # Shortcuts
///
/// Five options have shortcuts, because programs set them most often: [`ttl`](Self::ttl), [`wait`](Self::wait),
/// [`max_hold`](Self::max_hold), [`fenced`](Self::fenced) and
/// [`max_waiters_per_key`](Self::max_waiters_per_key). All builders have all five: [`Lock`](crate::Lock) for one
/// lock, [`RedlockBuilder`](crate::RedlockBuilder) for the default of all locks, and the `LockLayer`s of
/// `redlock-tower` and `redlock-axum` for the locks of a layer. Every other option is set through the method
/// `options`, which these builders have too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    ttl: Option<Duration>,
    wait: Option<Duration>,
    wait_at_most: Option<Duration>,
    max_attempts: Option<u32>,
    retry_delay: Option<(Duration, Duration)>,
    renewal: Option<Renewal>,
    max_hold: Option<Duration>,
    drift: Option<Drift>,
    max_waiters_per_key: Option<usize>,
    refuses_long_waits: Option<bool>,
    hands_over: Option<bool>,
    streak: Option<Duration>,
    max_handovers: Option<u32>,
    fenced: bool,
    poller_share: Option<PollerShare>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Every(Duration),
    Never,
}

impl LockOptions {
    const TTL: Duration = Duration::from_secs(10);
    const WAIT: Duration = Duration::from_secs(5);
    const MAX_HOLD: Duration = Duration::from_secs(60);
    const RETRY_DELAY: (Duration, Duration) =
        (Duration::from_millis(20), Duration::from_millis(200));
    const MAX_WAITERS: usize = 1024;
    const STREAK: Duration = Duration::from_millis(20);

    /// Creates options of which none is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time to live of the keys, in whole milliseconds (a fraction is cut off): how long
    /// the others wait for a holder that crashed. At least 3 ms with the default drift. At most
    /// [`RedlockBuilder::max_ttl`](crate::RedlockBuilder::max_ttl), which is the builder's default ttl, 10 s,
    /// unless it is set (and 100 years where nodes are trusted from the start, as embedded ones are).
    ///
    /// A live holder is renewed, so this need not be as long as the work takes. It should be
    /// much longer than a round trip and than the pauses of the process.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            ttl: Some(ttl),
            ..self
        }
    }

    /// Sets how long to wait for the lock, both for those before us in this process and for the rest
    /// of the world. Zero means one attempt, and none if somebody in this process has the lock or
    /// wants it; [`Duration::MAX`] means for ever.
    ///
    /// The first attempt is always carried to its verdict, which silent nodes can delay by their
    /// answer timeout; no later one lasts longer than this.
    #[doc(alias = "timeout")]
    pub fn wait(self, wait: Duration) -> Self {
        Self {
            wait: Some(wait),
            ..self
        }
    }

    /// Sets a bound to how long to wait, whatever [`wait`](Self::wait) says, for a caller who is gone by
    /// then. Of several bounds the shortest counts.
    pub fn wait_at_most(self, bound: Duration) -> Self {
        let bound = self.wait_at_most.map_or(bound, |it| it.min(bound));
        Self {
            wait_at_most: Some(bound),
            ..self
        }
    }

    /// Sets the most attempts to make within the waiting time. Zero counts as one. To look whether the
    /// lock is free yet, every [`retry_delay`](Self::retry_delay), counts as an attempt.
    pub fn max_attempts(self, attempts: u32) -> Self {
        Self {
            max_attempts: Some(attempts),
            ..self
        }
    }

    /// Sets the range from which the delay before each further attempt is drawn, where nobody tells
    /// that the lock is free. The shortest must not be zero.
    ///
    /// Where nodes tell (servers that speak RESP3, and [`MemoryNode`](crate::MemoryNode)s), the next
    /// attempt comes as soon as a majority of them is free, and this is how often to look whether that
    /// was missed.
    pub fn retry_delay(self, shortest: Duration, longest: Duration) -> Self {
        Self {
            retry_delay: Some((shortest, longest)),
            ..self
        }
    }

    /// Sets how often a held lock is extended in the background. Must be less than the ttl minus
    /// the drift.
    pub fn renew_every(self, interval: Duration) -> Self {
        Self {
            renewal: Some(Renewal::Every(interval)),
            ..self
        }
    }

    /// Turns extension in the background off: the lock is lost after its ttl unless
    /// [extended](crate::Hold::extend) by hand.
    pub fn no_renewal(self) -> Self {
        Self {
            renewal: Some(Renewal::Never),
            ..self
        }
    }

    /// Sets for how long a held lock is extended: no extension, in the background or by hand,
    /// starts later than this after the lock was acquired, so a holder that hangs keeps the others
    /// out for at most this and a ttl.
    /// [`Duration::MAX`] means for ever.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self {
            max_hold: Some(max_hold),
            ..self
        }
    }

    /// Sets the allowance for clocks that run at different rates.
    pub fn drift(self, drift: Drift) -> Self {
        Self {
            drift: Some(drift),
            ..self
        }
    }

    /// Sets how many may wait for the key in this process. Whoever comes then is refused at once, with
    /// [`LockError::QueueFull`](crate::LockError::QueueFull). See
    /// [`max_waiters_total`](crate::RedlockBuilder::max_waiters_total) for all keys together.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        Self {
            max_waiters_per_key: Some(waiters),
            ..self
        }
    }

    /// Refuses at once, with [`LockError::WaitTooLong`](crate::LockError::WaitTooLong), if the expected wait
    /// for those before us in this process exceeds [`wait`](Self::wait): if it would even if each of them
    /// held the lock as briefly as the shortest of the last eight holds. It never refuses while fewer holds are
    /// known, or before one has ended since somebody waits.
    ///
    /// Right where all holds take about as long. Where they differ much, it still refuses some that would
    /// have been served, if several long holds follow each other; so it is not the default.
    pub fn refuse_long_waits(self) -> Self {
        Self {
            refuses_long_waits: Some(true),
            ..self
        }
    }

    /// Waits even if the expected wait exceeds the limit. This is the default.
    pub fn allow_long_waits(self) -> Self {
        Self {
            refuses_long_waits: Some(false),
            ..self
        }
    }

    /// Sets for how long the lock may go from one holder to the next within this process, without a word
    /// to the nodes, before it is released so that other processes get their turn; at most half the ttl.
    /// While no other process comes, a turn is up to five times as long, but is not lengthened beyond 100 ms.
    ///
    /// A turn costs some round trips, in which nobody holds the lock: longer turns keep it busier, and
    /// let other processes wait for longer.
    ///
    /// The next must have been waiting, with the same ttl, renewal and longest hold, and both without
    /// a [fence](crate::Lock::fenced). A lock is not handed over by a holder that panics.
    pub fn handover_for(self, streak: Duration) -> Self {
        Self {
            hands_over: Some(true),
            streak: Some(streak),
            ..self
        }
    }

    /// Sets how often in a row, at most, the lock may go from one to the next in this way.
    pub fn max_handovers(self, handovers: u32) -> Self {
        Self {
            max_handovers: Some(handovers),
            ..self
        }
    }

    /// Sets the part of the time, in percent, for which this process leaves a lock free that it uses
    /// without interruption, in pauses of 8 ms and of 160 ms. More than 50 counts as 50; zero means never.
    ///
    /// Clients that are told when a lock is free (processes of ours over RESP3) need none of it. It is for
    /// those that poll: ours over RESP2 and over pools of your own, and all libraries of other
    /// languages. One that polls every `d` gets a busy lock about once in `d` divided by this part: every
    /// 100 ms and with 4 %, after 2.5 s on average. Raise it where many of them share locks with busy
    /// processes of ours. It costs as much of the time as it says, and a quarter of that while nobody
    /// comes. A waiter whose time is nearly over is not made to pause.
    pub fn poller_share(self, percent: u8) -> Self {
        Self {
            poller_share: Some(PollerShare::percent(percent)),
            ..self
        }
    }

    /// Has the lock released on the nodes each time, even if others wait in this process.
    pub fn no_handover(self) -> Self {
        Self {
            hands_over: Some(false),
            ..self
        }
    }

    /// Acquires the lock with a [fencing token](crate::Hold::fencing_token), for a resource that refuses writes
    /// with a smaller token than it has seen. Without such a resource the token is of no use.
    ///
    /// Costs one round trip if the nodes' counters are behind this machine's wall clock, and one or two more
    /// otherwise. Each node keeps a counter for the key, which never expires, as `redlock:fence:{<key>}` (or with
    /// another tag, see the README). A node that has something else there
    /// [gives no vote](crate::NodeError::NotACounter).
    ///
    /// Counters that are lost in a restart come back with the key while the lock is held. Otherwise tokens grow if
    /// the machines' wall clocks agree to within [`max_ttl`](crate::RedlockBuilder::max_ttl).
    ///
    /// A lock of several keys cannot have a token, and fails with [`OptionsError::SeveralFenced`].
    pub fn fenced(self) -> Self {
        Self {
            fenced: true,
            ..self
        }
    }

    /// Returns these options, completed by others where they are not set.
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
            refuses_long_waits: self.refuses_long_waits.or(fallback.refuses_long_waits),
            hands_over: self.hands_over.or(fallback.hands_over),
            streak: self.streak.or(fallback.streak),
            max_handovers: self.max_handovers.or(fallback.max_handovers),
            fenced: self.fenced || fallback.fenced,
            poller_share: self.poller_share.or(fallback.poller_share),
        }
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The ttl, or the default.
    pub(crate) fn ttl_or_default(&self) -> Duration {
        self.ttl.unwrap_or(Self::TTL)
    }

    /// How long to wait, or the default, within the bound.
    fn wait_or_default(&self) -> Duration {
        let bound = self.wait_at_most.unwrap_or(Duration::MAX);
        self.wait.unwrap_or(Self::WAIT).min(bound)
    }

    pub(crate) fn drift_or_default(&self) -> Drift {
        self.drift.unwrap_or_default()
    }

    /// Makes the policy of waiting within this process out of options and defaults.
    pub(crate) fn policy(&self) -> QueuePolicy {
        QueuePolicy {
            hands_over: self.hands_over.unwrap_or(true),
            streak: self
                .streak
                .unwrap_or(Self::STREAK)
                .min(self.ttl_or_default() / 2),
            max_handovers: self.max_handovers.unwrap_or(u32::MAX),
            poller_share: self.poller_share.unwrap_or_default(),
            max_waiters_per_key: self.max_waiters_per_key.unwrap_or(Self::MAX_WAITERS),
            wait: self.wait_or_default(),
            refuses_long_waits: self.refuses_long_waits.unwrap_or(false),
        }
    }

    /// Makes the machine's configuration out of options and defaults.
    pub(crate) fn resolve(&self, quorum: Quorum) -> Result<LeaseConfig, OptionsError> {
        let ttl = Ttl::new(self.ttl_or_default())?;
        let validity = Validity::new(ttl, self.drift_or_default())?;
        let (shortest, longest) = self.retry_delay.unwrap_or(Self::RETRY_DELAY);
        let retry = RetrySchedule::new(shortest..=longest)?;
        let retry = retry.with_probes();
        let retry = match self.max_attempts {
            Some(attempts) => retry.with_max_attempts(attempts),
            None => retry,
        };
        let max_hold = self.max_hold.unwrap_or(Self::MAX_HOLD);
        let keep_alive = match self.renewal {
            Some(Renewal::Never) => KeepAlive::on_demand(max_hold),
            Some(Renewal::Every(interval)) => KeepAlive::every(interval, max_hold, validity)?,
            None => {
                let interval = KeepAlive::default_interval(validity);
                KeepAlive::every(interval, max_hold, validity)?
            }
        };
        Ok(LeaseConfig {
            quorum,
            validity,
            retry,
            keep_alive,
        })
    }
}

/// Why options do not make a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The ttl is zero or too long.
    #[error(transparent)]
    Ttl(#[from] TtlError),
    /// The ttl is used up by the drift allowance.
    #[error(transparent)]
    Validity(#[from] ValidityError),
    /// The retry delay is zero, or its range is empty.
    #[error(transparent)]
    RetryDelay(#[from] RetryScheduleError),
    /// The ttl is longer than what a restarted node waits for before it votes again.
    #[error(
        "the ttl of {ttl:?} is longer than max_ttl, which is {max_ttl:?}: build with \
         `Redlock::builder().max_ttl(Duration::from_millis({}))`, in all processes that use these nodes",
        ttl.as_millis()
    )]
    LongerThanMaxTtl {
        /// The ttl that was asked for.
        ttl: Duration,
        /// The longest that any lock may have.
        max_ttl: Duration,
    },
    /// A lock of several keys cannot have a fencing token.
    #[error("a lock of several keys has no fencing token: lock one key, or leave out `fenced`")]
    SeveralFenced,
    /// The renewal interval cannot keep the lock.
    #[error(transparent)]
    Renewal(#[from] KeepAliveError),
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn resolve(options: LockOptions) -> Result<LeaseConfig, OptionsError> {
        options.resolve(Quorum::majority(5).unwrap())
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let documented = LockOptions::new()
            .ttl(MS(10_000))
            .wait(MS(5000))
            .retry_delay(MS(20), MS(200))
            .renew_every(MS(10_000) / 3)
            .max_hold(MS(60_000))
            .drift(Drift::new(10, MS(2)));
        assert_eq!(resolve(LockOptions::new()), resolve(documented));
    }

    #[test]
    fn what_is_set_wins_over_the_fallback() {
        let fallback = LockOptions::new().ttl(MS(1)).wait(MS(2));
        let options = LockOptions::new().ttl(MS(3)).or(fallback);
        assert_eq!(options, LockOptions::new().ttl(MS(3)).wait(MS(2)));
        assert_eq!(options.or(options.fenced()), options.fenced());
    }

    #[test]
    fn a_bound_shortens_a_wait_and_never_lengthens_it() {
        let bound = |millis| LockOptions::new().wait_at_most(MS(millis));
        let waits = |wait| resolve(LockOptions::new().wait(wait));
        assert_eq!(resolve(bound(700)), waits(MS(700)));
        assert_eq!(resolve(bound(700).wait(MS(50))), waits(MS(50)));
        assert_eq!(resolve(bound(700).wait(Duration::MAX)), waits(MS(700)));
        assert_eq!(resolve(bound(60_000)), waits(MS(5000)));
        assert_eq!(resolve(bound(70).or(bound(50).wait(MS(60)))), waits(MS(50)));
        assert_eq!(bound(70).wait_at_most(MS(90)), bound(70));
        assert_eq!(bound(70).policy().wait, MS(70));
    }

    #[test]
    fn bad_options_are_named() {
        let error = |options: LockOptions| resolve(options).unwrap_err().to_string();
        let options = LockOptions::new;
        assert!(error(options().ttl(MS(0))).contains("shorter than one millisecond"));
        assert!(error(options().ttl(Duration::MAX)).contains("longer than 100 years"));
        assert!(error(options().ttl(MS(2))).contains("used up by the drift"));
        assert!(error(options().retry_delay(MS(0), MS(9))).contains("retry delay is zero"));
        assert!(error(options().retry_delay(MS(9), MS(8))).contains("longer than the longest"));
        assert!(error(options().renew_every(MS(0))).contains("cannot keep a lock"));
        assert!(error(options().renew_every(MS(9_898))).contains("cannot keep a lock"));
    }

    #[test]
    fn extremes_are_accepted() {
        assert!(resolve(LockOptions::new().ttl(MS(3))).is_ok(), "shortest");
        let longest = LockOptions::new().ttl(Ttl::MAX.as_duration());
        assert!(resolve(longest.wait(Duration::MAX).max_hold(Duration::MAX)).is_ok());
        assert!(resolve(LockOptions::new().wait(MS(0)).max_attempts(0)).is_ok());
    }
}
