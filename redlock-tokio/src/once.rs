use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock_core::Timestamp;

use crate::{
    Attempts, Hold, Key, KeyError, Lock, LockError, LockGuard, LockOptions, Redlock, WithLockError,
    engine::requests::Client, key::KeySet,
};

/// How long to wait for the lock, unless the caller says otherwise. If all hosts of a fleet ask at once, none of them may get
/// it at first, and a few attempts settle that. All but one host wait for so long.
const WAIT: Duration = Duration::from_secs(1);

impl Redlock {
    /// Returns a run of a scheduled job, which one host of the fleet does. All hosts ask for it, for each fire time of the
    /// schedule, and all but one are told that the job runs elsewhere. Asks no node: see [`Once::run`], and [`Once`] for the
    /// clocks that are good enough and for what happens if the host dies.
    ///
    /// ```
    /// # use redlock_tokio::{OnceOutcome, Redlock};
    /// # use std::time::SystemTime;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let fire_time = SystemTime::now();
    /// let first = redlock.once("report", fire_time).run(async |_| "done").await?;
    /// assert_eq!(first, OnceOutcome::Ran("done"));
    /// let second = redlock.once("report", fire_time).run(async |_| "done again").await?;
    /// assert!(matches!(second, OnceOutcome::RunElsewhere(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(&self, job: impl AsRef<[u8]>, fire_time: SystemTime) -> Once {
        // Times before 1970 are all one.
        let fire_time = fire_time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let key = key_of(self.client(), job.as_ref(), fire_time);
        let keys = key.map(KeySet::from).map_err(LockError::InvalidKey);
        // A run that hangs keeps others from this fire time only.
        let options = LockOptions::new().wait(WAIT).max_hold(Duration::MAX);
        let lock = Lock::new(Arc::clone(self.client()), keys).options(options);
        Once { lock, fire_time }
    }
}

/// A run of a scheduled job, on one host of the fleet. Made by [`Redlock::once`](crate::Redlock::once).
///
/// ```
/// # use redlock_tokio::{OnceOutcome, Redlock};
/// # use std::time::{Duration, SystemTime};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// # let fire_time = SystemTime::now();
/// # async fn report() -> u32 { 42 }
/// // Every host does this, for each fire time of its schedule.
/// match redlock.once("report", fire_time).run(async |_hold| report().await).await? {
///     OnceOutcome::Ran(report) => println!("{report}"),
///     OnceOutcome::RunElsewhere(_) => println!("another host runs it, or has run it"),
///     OnceOutcome::Missed { late } => println!("{late:.1?} too late for it"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # How it works
///
/// The job and its fire time make the key of a lock: `once:report:1764000000000`, with the milliseconds since 1970. So all
/// hosts must compute the same fire time, and runs at different times do not disturb each other. The host that gets the lock
/// runs the job. It keeps the lock for the *span*, which is the ttl less the drift allowance (9.898 s by default), or for
/// as long as the job takes if that is longer. So a host that comes later finds the lock held, however short the job was.
///
/// A host whose own clock shows that half of the span is over does not run the job, whether it comes late or gets the lock
/// late. That is what makes it safe that the lock ends.
///
/// # Clocks
///
/// The job runs at most once if the wall clocks of the fleet differ by no more than half of the span: 4.949 s by default. A
/// host may come as much too late, by its own clock, in addition. For more, set a longer [`ttl`](Self::ttl). It must not
/// exceed [`max_ttl`](crate::RedlockBuilder::max_ttl), and must be the same on all hosts. Beyond that, a host whose clock
/// is late can run the job a second time.
///
/// # If the host dies
///
/// The job runs *at most* once: nobody takes over from a host that dies half way, or whose job panics or is dropped, and
/// the others learn only that the job was begun elsewhere. A job that must not be lost has to find at its next fire time
/// what the last run has left undone. If the nodes cannot form a majority, no host runs the job, and each gets the error.
///
/// If the lock is lost while the job runs, the job is dropped. If too many nodes lose their keys within the span, or somebody
/// [frees](crate::Redlock::force_unlock) the lock, any host can run the job again.
#[derive(Debug)]
#[must_use = "the job runs only when `run` is awaited"]
pub struct Once {
    lock: Lock,
    /// Since 1970.
    fire_time: Duration,
}

impl Once {
    /// Sets options for the lock. Options that are not set keep what was set before.
    ///
    /// [`wait`](LockOptions::wait) is 1 s unless it is set. All hosts but one wait for so long before they learn that the job
    /// runs elsewhere. [`max_hold`](LockOptions::max_hold), which ends a job that takes longer, has no limit unless it is set.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.lock = self.lock.options(options);
        self
    }

    /// Sets the [time to live](LockOptions::ttl) of the lock, and with it the [clocks](Self#clocks) that are good enough.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Waits until the fire time, and runs the job if this host is the one.
    ///
    /// Costs one round trip to the majority for the host that runs the job. The other hosts ask for the lock as
    /// any waiter does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the job, which counts as run once it has begun.
    ///
    /// # Errors
    ///
    /// Fails with [`WithLockError::Lock`] if the job was not begun and nothing is known of the other hosts, and with
    /// [`WithLockError::Lost`] if the lock was lost before the end of the job. That another host has the lock is not an error.
    pub async fn run<T>(
        self,
        job: impl AsyncFnOnce(&Hold) -> T,
    ) -> Result<OnceOutcome<T>, WithLockError> {
        let client = Arc::clone(self.lock.client());
        let validity = self.lock.validity().map_err(LockError::InvalidOptions)?;
        let span = validity.span();
        wait_for(&client, self.fire_time).await;
        let begun = client.clock.now();
        let missed = || {
            let late = client
                .wall_clock
                .since_1970()
                .saturating_sub(self.fire_time);
            (late >= span / 2).then_some(OnceOutcome::Missed { late })
        };
        if let Some(missed) = missed() {
            return Ok(missed);
        }
        // The next holder in this process would have less than the span.
        let lock = self.lock.options(LockOptions::new().handover(false));
        let guard = match lock.await {
            Ok(guard) => guard,
            Err(LockError::Contended(attempts)) => return Ok(OnceOutcome::RunElsewhere(attempts)),
            Err(error) => return Err(error.into()),
        };
        if let Some(missed) = missed() {
            return Ok(missed);
        }
        // The request began no earlier, so the lock is valid until then.
        let kept = Kept {
            until: begun.saturating_add(span),
            guard,
        };
        let outcome = kept.guard.protect(job(&kept.guard)).await;
        if let Some(known) = kept.keep() {
            known.await;
        }
        outcome.map(OnceOutcome::Ran).map_err(WithLockError::Lost)
    }
}

/// The outcome of a [job](crate::Redlock::once), as this host knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum OnceOutcome<T> {
    /// This host has run it, with this result.
    Ran(T),
    /// Another host runs it or has run it, or another task of this process. Nothing is known of its result.
    /// [`Attempts::taken_by`] names the host, if a node has told.
    ///
    /// It is also possible that many hosts have asked at once, and none has got a majority of the nodes within the
    /// [wait](Once::options).
    RunElsewhere(Attempts),
    /// This host has come too late, by its own clock. Another host may have run it.
    Missed {
        /// The time since the fire time.
        late: Duration,
    },
}

/// The lock of a job that has begun. When it is dropped, for whatever reason, others still find the lock held for as long as
/// they could come.
struct Kept {
    until: Timestamp,
    guard: LockGuard,
}

impl Kept {
    /// Returns what ends once the nodes know until when to keep the lock. If it was lost, there is nothing to keep.
    fn keep(&self) -> Option<impl Future<Output = ()>> {
        let now = self.guard.handle().now();
        self.guard.held().release_at(now, self.until)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Nobody can wait for it here.
        drop(self.keep());
    }
}

fn key_of(client: &Client, job: &[u8], fire_time: Duration) -> Result<Key, KeyError> {
    if job.is_empty() {
        return Err(KeyError::Empty);
    }
    // The last colon ends the job, so no two jobs share a key.
    let fire_time = format!(":{}", fire_time.as_millis());
    let key = [b"once:", job, fire_time.as_bytes()].concat();
    Key::with_prefix(&client.prefix, &key)
}

/// Waits until the wall clock, which may be set meanwhile, shows this time.
async fn wait_for(client: &Client, fire_time: Duration) {
    loop {
        let left = fire_time.saturating_sub(client.wall_clock.since_1970());
        if left.is_zero() {
            return;
        }
        let until = client.clock.now().saturating_add(left);
        client.clock.sleep_until(until).await;
    }
}
