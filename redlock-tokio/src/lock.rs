mod adopt;
mod conclusion;
mod observed;
mod outage;

use std::{
    fmt,
    future::poll_fn,
    mem,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures::FutureExt;
use redlock_core::{Share, Timestamp, Validity};

pub use self::adopt::{Adopt, AdoptError};
use self::{
    conclusion::{Request, conclude, poll_outcome},
    observed::ObservedRequest,
    outage::Outlook,
};
use crate::{
    Hold, LockError, LockGuard, LockOptions, OptionsError, WithLockError,
    engine::{
        lane::Prospect,
        requests::{self, Client, LeaseRequest},
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
///     .ttl(Duration::from_secs(5))
///     .wait(Duration::from_secs(2))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a lock is only requested when awaited"]
pub struct Lock {
    client: Arc<Client>,
    /// The caller learns of an error when the request is awaited.
    keys: Result<KeySet, Box<LockError>>,
    /// `None` if none is set, as for most locks.
    options: Option<Box<LockOptions>>,
}

impl Lock {
    pub(crate) fn new(client: Arc<Client>, keys: Result<KeySet, LockError>) -> Self {
        Self {
            client,
            keys: keys.map_err(Box::new),
            options: None,
        }
    }

    /// Sets options for this lock. Options that are not set keep what was set before.
    pub fn options(mut self, options: LockOptions) -> Self {
        let options = options.or(self.set_options());
        self.options = Some(Box::new(options));
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

    /// Sets how many [attempts](LockOptions::max_attempts) to make within that time.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.options(LockOptions::new().max_attempts(attempts))
    }

    /// Sets the [delay](LockOptions::retry_delay) between attempts, where nodes send no notifications.
    pub fn retry_delay(self, shortest: Duration, longest: Duration) -> Self {
        self.options(LockOptions::new().retry_delay(shortest, longest))
    }

    /// Sets for how long this lock may be [held](LockOptions::max_hold).
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Sets whether this lock has a [fencing token](LockOptions::fenced).
    pub fn fenced(self, fenced: bool) -> Self {
        self.options(LockOptions::new().fenced(fenced))
    }

    /// Sets how many requests may [wait](LockOptions::max_waiters_per_key) for the key in this process.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets the [label](LockOptions::label) of this lock in the log.
    pub fn label(self, label: &'static str) -> Self {
        self.options(LockOptions::new().label(label))
    }

    /// Acquires the lock, runs `work` and releases the lock. If the lock is lost, `work` is dropped at its current
    /// `await`; what it has done remains. It is not polled after the end of the validity, even if the process was
    /// stopped meanwhile. If `work` returns a `Result`, use `??`.
    ///
    /// Returns when a majority of the nodes has confirmed the release, or when a waiter of this process has got the
    /// lock. So a client that learns of the result finds the lock free. That costs one round trip to the majority.
    /// Nodes that do not answer cost a [`node_timeout`](crate::RedlockBuilder::node_timeout) at most, and get the
    /// release later.
    ///
    /// The work gets a [`Hold`], which knows the [remaining time](Hold::remaining) and can [extend](Hold::extend) the
    /// lock. Write `async |hold| ..`, or `async move |hold| ..`. With `|hold| async move { .. }`, the compiler says that the
    /// implementation "is not general enough".
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let total = redlock.lock("order:42").with(async |_hold| 6 * 7).await?;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work, and releases the lock in the background. If the work is done and only the
    /// release is awaited, its result is dropped, and the release goes on.
    ///
    /// # Errors
    ///
    /// Fails with [`WithLockError::Lock`] if the work was not begun, and with [`WithLockError::Lost`] if the lock
    /// was lost before the end of the work. A loss between the end of the work and the release counts too, because
    /// the end of the work was not protected.
    pub async fn with<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T, WithLockError> {
        let guard = self.await?;
        let outcome = guard.protect(work(&guard)).await;
        // The next step of the caller, here or in another process, finds the lock free.
        guard.release().await;
        outcome.map_err(WithLockError::Lost)
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the time for which this lock is valid if no extension succeeds, less what acquiring it takes.
    pub(crate) fn validity(&self) -> Result<Validity, OptionsError> {
        let terms = self.client.terms(self.options.as_deref())?;
        Ok(terms.config.validity)
    }

    fn set_options(&self) -> LockOptions {
        self.options.as_deref().copied().unwrap_or_default()
    }

    fn prepare(self) -> Result<(Arc<Client>, LeaseRequest), LockError> {
        let client = self.client;
        if client.is_shut_down() {
            return Err(LockError::ShutDown);
        }
        let keys = self.keys.map_err(|it| *it)?;
        let options = self.options.as_deref();
        if keys.share() == Share::Reader && options.is_some_and(LockOptions::is_fenced) {
            return Err(LockError::InvalidOptions(OptionsError::FencedReader));
        }
        let terms = client.terms(options).map_err(LockError::InvalidOptions)?;
        let label = options.and_then(LockOptions::label_if_set);
        let request = observed::request(&client, keys, terms, label);
        Ok((client, request))
    }
}

impl IntoFuture for Lock {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = LockFuture;

    fn into_future(self) -> LockFuture {
        LockFuture {
            state: State::New(self),
            observed: None,
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("keys", &self.keys)
            .field("options", &self.set_options())
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
pub struct LockFuture {
    state: State,
    /// Dropped after the state. `None` if there are no observers, or they know how the request has ended.
    observed: Option<Box<ObservedRequest>>,
}

enum State {
    New(Lock),
    /// The lanes try to connect, to find out whether an outage still lasts.
    InDoubt(AssertUnwindSafe<Doubt>),
    /// Waits for its turn in this process, or for the nodes.
    Waiting {
        /// Does not hold the lock yet, but already releases it when it is dropped.
        guard: LockGuard,
        outlook: Outlook,
        /// The task is woken when there is an outcome.
        is_registered: bool,
    },
    Done,
}

impl LockFuture {
    /// Returns whether the request waits for its turn, because another request of this process has or wants one of
    /// its keys. False before the first poll, and once the request asks the nodes.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        match &self.state {
            State::Waiting { guard, .. } => guard.handle().is_waiting(),
            State::New(_) | State::InDoubt(_) | State::Done => false,
        }
    }
}

impl Future for LockFuture {
    type Output = Result<LockGuard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let next = match &mut this.state {
                State::New(_) => match mem::replace(&mut this.state, State::Done) {
                    State::New(lock) => start(lock, cx.waker(), &mut this.observed),
                    _ => return Poll::Pending,
                },
                State::InDoubt(begun) => ready!(begun.poll_unpin(cx)),
                State::Waiting {
                    guard,
                    outlook,
                    is_registered,
                } => {
                    let since = outlook.since;
                    let polled = if mem::take(is_registered) {
                        Poll::Pending
                    } else {
                        let now = guard.handle().now();
                        poll_outcome(guard, since, now, cx, &this.observed)
                    };
                    match polled {
                        Poll::Pending => {
                            let request = Request::of_lease(guard.handle(), since);
                            Err(ready!(outlook.poll_refusal(&request)))
                        }
                        Poll::Ready(outcome) => {
                            let State::Waiting { guard, .. } =
                                mem::replace(&mut this.state, State::Done)
                            else {
                                return Poll::Pending;
                            };
                            let observed = &mut this.observed;
                            return Poll::Ready(conclude(guard, since, outcome, observed));
                        }
                    }
                }
                // Polled again after its end, like a fused future.
                State::Done => return Poll::Pending,
            };
            this.state = State::Done;
            this.state = match next {
                Ok(next) => next,
                Err(error) => return Poll::Ready(Err(observed::fail(&mut this.observed, error))),
            };
        }
    }
}

/// Ends the doubt, and begins to wait.
type Doubt = Pin<Box<dyn Future<Output = Result<State, LockError>> + Send + Sync>>;

/// Begins to wait, unless the request fails at once.
fn start(
    lock: Lock,
    waker: &Waker,
    observed: &mut Option<Box<ObservedRequest>>,
) -> Result<State, LockError> {
    let (client, request) = lock.prepare()?;
    // Redlock step 1: the clock is read before the first byte leaves.
    let now = client.clock.now();
    *observed = ObservedRequest::begin(&client, &request, now);
    let outlook = Outlook::new(now, &request.terms);
    match outlook.look(&client) {
        Prospect::NoVote => return Err(Request::new(&client, &request.keys, now).refusal()),
        Prospect::InDoubt if request.terms.policy.wait >= client.node_timeout => {
            return Ok(State::in_doubt(outlook, client, request));
        }
        Prospect::InDoubt | Prospect::MayVote => {}
    }
    State::begin(&client, &request, now, outlook, waker)
}

impl State {
    fn begin(
        client: &Arc<Client>,
        request: &LeaseRequest,
        now: Timestamp,
        outlook: Outlook,
        waker: &Waker,
    ) -> Result<Self, LockError> {
        let (held, is_registered) = requests::begin(client, now, request, waker)
            .map_err(|(handle, end)| Request::of_lease(&handle, outlook.since).failure(end))?;
        let guard = LockGuard::new(Hold::new(held));
        // The shutdown may have begun after `prepare`. From here on it sees the request and stops it.
        if client.is_shut_down() {
            guard.handle().stop_acquiring();
        }
        Ok(Self::Waiting {
            guard,
            outlook,
            is_registered,
        })
    }

    fn in_doubt(outlook: Outlook, client: Arc<Client>, mut request: LeaseRequest) -> Self {
        let begun = async move {
            let left = outlook.resolve(&client, &request.keys).await?;
            Arc::make_mut(&mut request.terms).policy.wait = left;
            let now = client.clock.now();
            let begin = |waker: &Waker| Self::begin(&client, &request, now, outlook, waker);
            poll_fn(|cx| Poll::Ready(begin(cx.waker()))).await
        };
        Self::InDoubt(AssertUnwindSafe(Box::pin(begun)))
    }
}

impl fmt::Debug for LockFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::New(_) => "LockFuture(New)",
            State::InDoubt(_) => "LockFuture(InDoubt)",
            State::Waiting { .. } => "LockFuture(Waiting)",
            State::Done => "LockFuture(Done)",
        })
    }
}
