use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use redlock_core::{AcquireFailure, LossReason, Nonce, Timestamp};

use crate::{
    Attempts, Hold, KeyError, LockError, LockGuard, LockOptions, OptionsError, RandomError,
    WithLockError,
    engine::{
        lease_cell::{Acquisition, End, HeldLease, LeaseCell, LeaseRequest, Shared},
        queue::Refusal,
    },
    key::KeySet,
    node::status,
};

/// A lock that is about to be requested. Made by [`Redlock::lock`](crate::Redlock::lock); await it.
///
/// ```
/// # use redlock_tokio::{LockError, Redlock};
/// # use std::time::Duration;
/// # async fn example(redlock: Redlock) -> Result<(), LockError> {
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
    shared: Arc<Shared>,
    keys: Result<KeySet, KeyError>,
    options: LockOptions,
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, keys: Result<KeySet, KeyError>) -> Self {
        Self {
            shared,
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

    /// Acquires the lock, does the work and releases the lock; see [`Redlock::with_lock`](crate::Redlock::with_lock).
    ///
    /// # Errors
    ///
    /// Says whether the work was never begun, or was cut off.
    pub async fn with<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T, WithLockError> {
        let guard = self.await?;
        tokio::select! {
            biased;
            reason = guard.lost() => Err(WithLockError::Lost(reason)),
            result = work(&guard) => {
                if guard.is_valid() {
                    Ok(result)
                } else {
                    // The clock says so, even if no task has come round to saying it yet.
                    Err(WithLockError::Lost(guard.lost().await))
                }
            }
        }
    }

    fn prepare(&self) -> Result<LeaseRequest, LockError> {
        let shared = &self.shared;
        if shared.is_shut_down() {
            return Err(LockError::ShutDown);
        }
        let keys = self.keys.clone().map_err(LockError::InvalidKey)?;
        let options = self.options.or(shared.defaults);
        let config = shared.resolve(options).map_err(LockError::InvalidOptions)?;
        if options.is_fenced() && keys.has_several() {
            return Err(LockError::InvalidOptions(OptionsError::SeveralFenced));
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| LockError::Random(RandomError(error)))?;
        Ok(LeaseRequest {
            keys,
            config,
            policy: options.policy(),
            nonce: Nonce::new(u128::from_ne_bytes(random)),
            fenced: options.is_fenced(),
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
/// Costs one round trip to the majority if the lock is free, and none if it is handed over by its
/// holder in this process.
///
/// The lock is renewed once this future has returned the guard. If the future is kept but not polled
/// after the nodes have granted the lock, the lock ends with its first validity, after at most one
/// [ttl](LockOptions::ttl).
///
/// # Cancel safety
///
/// Dropping the future gives up. The waiters behind it move up, and everything that was set on any node
/// is released in the background.
#[must_use = "futures do nothing unless polled"]
pub struct LockFuture(State);

#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each lock an allocation"
)]
enum State {
    New(Lock),
    Waiting {
        /// Not yet the holder, but already the one who releases.
        guard: LockGuard,
        since: Timestamp,
    },
    Done,
}

impl Future for LockFuture {
    type Output = Result<LockGuard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(lock) = &self.0 {
            match start(lock) {
                Ok(waiting) => self.0 = waiting,
                Err(error) => {
                    self.0 = State::Done;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let State::Waiting { guard, .. } = &self.0 else {
            // Polled again after its end; pending is what a fused future would say.
            return Poll::Pending;
        };
        let Poll::Ready(acquisition) = guard.cell().poll_acquired(cx) else {
            return Poll::Pending;
        };
        let State::Waiting { guard, since } = std::mem::replace(&mut self.0, State::Done) else {
            return Poll::Pending;
        };
        let cell = Arc::clone(guard.cell());
        let outcome = conclude(&cell, guard, since, acquisition);
        match &outcome {
            Ok(_) => cell.outage().note_success(),
            Err(error) if error.is_outage() => cell.outage().note_failure(cell.now(), error),
            Err(_) => {}
        }
        Poll::Ready(outcome)
    }
}

fn conclude(
    cell: &LeaseCell,
    guard: LockGuard,
    since: Timestamp,
    acquisition: Acquisition<Arc<LeaseCell>>,
) -> Result<LockGuard, LockError> {
    let (guard, end) = match acquisition {
        Acquisition::Held => (guard, None),
        // From here on, dropping the guard releases the lock that was handed over. The guard of the lease that
        // waited has nothing to release.
        Acquisition::HandedOver(held) => (LockGuard::new(Hold::new(held)), None),
        Acquisition::Ended(end) => (guard, Some(end)),
    };
    // Without a runtime no lock is given out, and the nodes are not to blame.
    if cell.is_shut_down() {
        return Err(LockError::ShutDown);
    }
    match end {
        Some(end) => Err(failure(cell, since, end)),
        None if guard.claim() => Ok(guard),
        // The task was kept from running since the lock was acquired.
        None => Err(LockError::TooSlow(attempts(cell, since, cell.attempts()))),
    }
}

/// Returns why a lease ended without the lock.
fn failure(cell: &LeaseCell, since: Timestamp, end: End) -> LockError {
    let attempts = |count| attempts(cell, since, count);
    match end {
        End::Refused(Refusal::Busy) => passed_over(cell, attempts(0)),
        End::Refused(Refusal::Full { waiting, limit }) => LockError::QueueFull { waiting, limit },
        End::Refused(Refusal::TooLong {
            waiting,
            expected,
            limit,
        }) => LockError::WaitTooLong {
            waiting,
            expected,
            limit,
        },
        End::Exhausted {
            failure,
            attempts: count,
        } => match failure {
            AcquireFailure::Contended if count == 0 => passed_over(cell, attempts(0)),
            AcquireFailure::Contended => LockError::Contended(attempts(count)),
            AcquireFailure::NoQuorum => LockError::NoQuorum(attempts(count)),
            AcquireFailure::TooSlow => LockError::TooSlow(attempts(count)),
            AcquireFailure::Quarantined { until } => LockError::Quarantined {
                remaining: cell
                    .quorum_in()
                    .unwrap_or(until.saturating_duration_since(cell.now())),
                attempts: attempts(count),
            },
            AcquireFailure::FenceExhausted => LockError::FenceExhausted,
            // The enum may grow. This driver cannot distinguish failures that it does not know.
            _ => LockError::ShutDown,
        },
        End::Lost(LossReason::Abandoned) => LockError::ShutDown,
        End::Lost(_) | End::Released(_) | End::GivenUp | End::TookOver => {
            LockError::TooSlow(attempts(cell.attempts()))
        }
    }
}

fn attempts(cell: &LeaseCell, since: Timestamp, count: u32) -> Attempts {
    let quorum = cell.quorum();
    Attempts {
        count,
        votes_needed: quorum.votes(),
        votes_possible: quorum.nodes(),
        waited: cell.now().saturating_duration_since(since),
        nodes: cell.reports(),
    }
}

/// Returns why a lease never had its turn in this process: another task holds the lock, or the nodes keep
/// that task from it.
fn passed_over(cell: &LeaseCell, mut attempts: Attempts) -> LockError {
    if cell.is_held_by_another() {
        return LockError::Contended(attempts);
    }
    let nodes = cell.nodes();
    let quorum_in = status::quorum_in(&nodes, cell.quorum());
    if quorum_in == Some(Duration::ZERO) {
        return LockError::Contended(attempts);
    }
    attempts.nodes = status::objections(nodes);
    match quorum_in {
        Some(remaining) => LockError::Quarantined {
            remaining,
            attempts,
        },
        None => LockError::NoQuorum(attempts),
    }
}

fn start(lock: &Lock) -> Result<State, LockError> {
    let request = lock.prepare()?;
    let shared = &lock.shared;
    let since = shared.clock.now();
    let cell = LeaseCell::start(shared, request);
    if shared.is_shut_down() {
        // Since `prepare` looked. From here on `shutdown` sees the lease and stops it.
        cell.stop_acquiring();
    }
    Ok(State::Waiting {
        guard: LockGuard::new(Hold::new(HeldLease::first(cell))),
        since,
    })
}

impl fmt::Debug for LockFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            State::New(_) => "LockFuture(New)",
            State::Waiting { .. } => "LockFuture(Waiting)",
            State::Done => "LockFuture(Done)",
        })
    }
}
