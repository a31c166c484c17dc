mod conclusion;
mod outage;

use std::{
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::FutureExt;
use redlock_core::{Nonce, Timestamp};

use self::{
    conclusion::conclude,
    outage::{Outlook, want_connections},
};
use crate::{
    Hold, KeyError, LockError, LockGuard, LockOptions, RandomError, WithLockError,
    engine::{
        lane::Prospect,
        lease_cell::{Client, HeldLease, LeaseCell, LeaseRequest},
    },
    key::KeySet,
};

/// A request for a lock, with its options. Made by [`Redlock::lock`](crate::Redlock::lock).
///
/// Await it to get the lock. It implements [`IntoFuture`]: [`LockFuture`] documents cost and cancel safety.
///
/// ```
/// # use redlock_tokio::Redlock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// let guard = redlock
///     .lock("order:42")
///     .ttl(Duration::from_secs(30))
///     .wait(Duration::from_secs(2))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a lock is only requested when awaited"]
pub struct Lock {
    client: Arc<Client>,
    keys: Result<KeySet, KeyError>,
    options: LockOptions,
}

impl Lock {
    pub(crate) fn new(client: Arc<Client>, keys: Result<KeySet, KeyError>) -> Self {
        Self {
            client,
            keys,
            options: LockOptions::new(),
        }
    }

    /// Sets options for this lock. Options that are not set keep what was set before.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().max_attempts(3).no_renewal();
    /// let guard = redlock.lock("order:42").options(options).await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// Sets the [time to live](LockOptions::ttl) of this lock.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets how long to [wait](LockOptions::wait) for this lock.
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets for how long this lock may be [held](LockOptions::max_hold).
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Acquires this lock with a [fencing token](LockOptions::fenced).
    pub fn fenced(self) -> Self {
        self.options(LockOptions::new().fenced())
    }

    /// Sets how many requests may [wait](LockOptions::max_waiters_per_key) for the key in this process.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets the [label](LockOptions::label) of this lock in the log.
    pub fn label(self, label: &'static str) -> Self {
        self.options(LockOptions::new().label(label))
    }

    /// Acquires the lock, runs `work` and releases the lock in the background. If the lock is lost, `work` is dropped
    /// at its current `await`; what it has done remains. If `work` returns a `Result`, use `??`.
    /// [`Redlock::with_lock`](crate::Redlock::with_lock) documents cancel safety.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let lock = redlock.lock("report").max_hold(Duration::from_secs(3600));
    /// let pages = lock.with(async |_hold| 12).await?;
    /// assert_eq!(pages, 12);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`WithLockError::Lock`] if the work was not begun, and with [`WithLockError::Lost`] if the lock
    /// was lost before the end of the work.
    pub async fn with<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T, WithLockError> {
        let guard = self.await?;
        tokio::select! {
            biased;
            reason = guard.lost() => Err(WithLockError::Lost(reason)),
            result = work(&guard) => {
                if guard.is_valid() {
                    Ok(result)
                } else {
                    // The clock shows the loss before a task has noticed it.
                    Err(WithLockError::Lost(guard.lost().await))
                }
            }
        }
    }

    fn prepare(&self) -> Result<LeaseRequest, LockError> {
        let client = &self.client;
        if client.is_shut_down() {
            return Err(LockError::ShutDown);
        }
        let keys = self.keys.clone().map_err(LockError::InvalidKey)?;
        let options = self.options.or(client.defaults);
        let config = client.resolve(options).map_err(LockError::InvalidOptions)?;
        let policy = options.policy(&client.common);
        let random = client.random.u128();
        let random = random.map_err(|error| LockError::Random(RandomError(error)))?;
        Ok(LeaseRequest {
            keys,
            config,
            policy,
            nonce: Nonce::new(random),
            fenced: options.is_fenced(),
            label: options.label_if_set(),
        })
    }
}

impl IntoFuture for Lock {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = LockFuture;

    fn into_future(self) -> LockFuture {
        LockFuture(State::New(self))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("keys", &self.keys)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The future of a [`Lock`].
///
/// Costs one round trip to the majority if the lock is free, and none if a holder in this process hands it over.
///
/// Renewal begins when this future returns the guard. If the future is kept but not polled after the nodes have
/// granted the lock, the lock ends with its first validity, within one [ttl](LockOptions::ttl).
///
/// # Cancel safety
///
/// Dropping the future gives up. The waiters behind it move up, and keys that were set on nodes are released in the
/// background.
///
/// ```
/// # use redlock_tokio::Redlock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// # let _other = redlock.lock("order:42").await?;
/// let lock = redlock.lock("order:42").into_future();
/// let limited = tokio::time::timeout(Duration::from_millis(50), lock);
/// assert!(limited.await.is_err()); // nothing is left behind
/// assert_eq!(redlock.queue().waiting, 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct LockFuture(State);

enum State {
    New(Lock),
    /// The lanes try to connect, to find out whether an outage still lasts.
    InDoubt(AssertUnwindSafe<Settling>),
    Waiting {
        /// Does not hold the lock yet, but already releases it when it is dropped.
        guard: LockGuard,
        /// The time of the request.
        since: Timestamp,
    },
    Done,
}

impl LockFuture {
    /// Returns whether the request waits for its turn, because another request of this process has or wants one of
    /// its keys. False before the first poll, and once the request asks the nodes.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        match &self.0 {
            State::Waiting { guard, .. } => guard.cell().is_queued(),
            State::New(_) | State::InDoubt(_) | State::Done => false,
        }
    }
}

impl Future for LockFuture {
    type Output = Result<LockGuard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(lock) = &self.0 {
            let begun = start(lock);
            self.0 = State::Done;
            self.0 = begun?;
        }
        if let State::InDoubt(settled) = &mut self.0 {
            let begun = ready!(settled.poll_unpin(cx));
            self.0 = State::Done;
            self.0 = begun?;
        }
        let State::Waiting { guard, .. } = &self.0 else {
            // Polled again after its end, like a fused future.
            return Poll::Pending;
        };
        let Poll::Ready(outcome) = guard.cell().poll_acquired(cx) else {
            return Poll::Pending;
        };
        let State::Waiting { guard, since } = std::mem::replace(&mut self.0, State::Done) else {
            return Poll::Pending;
        };
        let cell = Arc::clone(guard.cell());
        let outcome = conclude(&cell, guard, since, outcome);
        match &outcome {
            Ok(_) => cell.outage().note_success(),
            Err(error) if error.is_outage() => cell.outage().note_failure(cell.now(), error),
            Err(_) => {}
        }
        Poll::Ready(outcome)
    }
}

type Settling = Pin<Box<dyn Future<Output = Result<State, LockError>> + Send + Sync>>;

/// Begins to wait, unless the request fails at once.
fn start(lock: &Lock) -> Result<State, LockError> {
    let request = lock.prepare()?;
    let client = &lock.client;
    let outlook = Outlook::new(client, request.policy.wait);
    let majority = outlook.majority(client);
    if majority == Prospect::MayVote {
        return Ok(State::waiting(client, request, outlook.since()));
    }
    want_connections(client);
    let fails_fast = lock.options.or(client.defaults).fails_fast();
    let has_time = request.policy.wait >= client.node_timeout;
    match majority {
        Prospect::NoVote if fails_fast => Err(outlook.refusal(client)),
        Prospect::InDoubt if fails_fast && has_time => {
            Ok(State::settling(outlook, Arc::clone(client), request))
        }
        _ => Ok(State::waiting(client, request, outlook.since())),
    }
}

impl State {
    fn waiting(client: &Arc<Client>, request: LeaseRequest, since: Timestamp) -> Self {
        let cell = LeaseCell::start(client, request);
        if client.is_shut_down() {
            // The shutdown began after `prepare`. From here on it sees the lease and stops it.
            cell.stop_acquiring();
        }
        Self::Waiting {
            guard: LockGuard::new(Hold::new(HeldLease::first(cell))),
            since,
        }
    }

    fn settling(outlook: Outlook, client: Arc<Client>, mut request: LeaseRequest) -> Self {
        let settled = async move {
            request.policy.wait = outlook.settle(&client).await?;
            Ok(Self::waiting(&client, request, outlook.since()))
        };
        Self::InDoubt(AssertUnwindSafe(Box::pin(settled)))
    }
}

impl fmt::Debug for LockFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            State::New(_) => "LockFuture(New)",
            State::InDoubt(_) => "LockFuture(InDoubt)",
            State::Waiting { .. } => "LockFuture(Waiting)",
            State::Done => "LockFuture(Done)",
        })
    }
}
