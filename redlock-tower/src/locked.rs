use std::{
    fmt,
    future::pending,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::FutureExt;
use redlock_tokio::{Hold, LockGuard, LossReason, ReleaseReport};

use crate::{mutex::Mutex, rules::Rules};

/// The lock that a call runs under, as the inner service sees it.
///
/// A [`ShareHold`] passes it to the inner service. The layer releases the lock when the call has
/// ended. The inner service can [release](Self::release_early) the lock earlier, or [take it over](Self::into_owned).
/// Clones refer to the same lock. Any of them can release the lock or take it over.
///
/// ```
/// use std::convert::Infallible;
///
/// use redlock_tokio::Redlock;
/// use redlock_tower::{LockLayer, Locked};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// struct Job {
///     account: u64,
///     lock: Option<Locked>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = Redlock::embedded().await?;
/// let key = |job: &Job| format!("account:{}", job.account);
/// let service = LockLayer::new(redlock, key)
///     .share_hold(|job: &mut Job, lock: Locked| job.lock = Some(lock))
///     .layer(service_fn(async |job: Job| {
///         let lock = job.lock.expect("the job ran under its lock");
///         assert!(lock.is_valid());
///         lock.release_early().await; // the rest needs no lock
///         Ok::<_, Infallible>(job.account)
///     }));
/// let job = Job { account: 7, lock: None };
/// assert_eq!(service.oneshot(job).await?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locked {
    held: Arc<Held>,
}

/// The lock of a call, shared by all that may release it.
struct Held {
    hold: Hold,
    /// Empty once the lock is taken over or released.
    guard: Mutex<Option<LockGuard>>,
    /// Whether the body of the response keeps the lock, and no longer the call.
    by_body: AtomicBool,
    rules: Arc<Rules>,
}

impl Locked {
    pub(crate) fn new(guard: LockGuard, rules: Arc<Rules>) -> Self {
        Self {
            held: Arc::new(Held {
                hold: guard.hold().view(),
                guard: Mutex::new(Some(guard)),
                by_body: AtomicBool::new(false),
                rules,
            }),
        }
    }

    /// Returns the view of the lock, without the right to release it.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.held.hold
    }

    /// Takes the lock over, for work that goes on after the response, such as a stream or a WebSocket.
    ///
    /// The layer no longer releases the lock. It is held for as long as the guard lives, but is renewed for at
    /// most [`max_hold`](redlock_tokio::LockOptions::max_hold). [`LockGuard::into_ticket`] passes it on to another
    /// process.
    ///
    /// Returns `None` if the lock was already taken over or released, or the call has ended. If the lock is lost,
    /// returns a guard that is not valid.
    #[must_use = "the lock is released as soon as the guard is dropped"]
    pub fn into_owned(self) -> Option<LockGuard> {
        self.take()
    }

    /// Releases the lock before the call has ended, and waits until a majority of nodes has confirmed the
    /// release; see [`LockGuard::release`] for its cost and its cancel safety.
    ///
    /// Returns `None` if the lock was already taken over or released, or the call has ended. If the lock is lost, the
    /// report says [`NotHeld`](redlock_tokio::ReleaseOutcome::NotHeld).
    pub async fn release_early(&self) -> Option<ReleaseReport> {
        match self.take() {
            Some(guard) => Some(guard.release().await),
            None => None,
        }
    }

    /// Returns whether the layer should still hold the lock, but has lost it. Once the lock was released or taken over,
    /// the layer does not hold it any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let guard = self.held.guard.lock();
        guard.as_ref().is_some_and(|guard| !guard.is_valid())
    }

    pub(crate) fn take(&self) -> Option<LockGuard> {
        self.held.guard.lock().take()
    }

    /// Waits until the layer has lost the lock. A lock that the inner service has taken over is not the layer's.
    pub(crate) async fn lost_by_layer(&self) -> LossReason {
        let reason = self.held.hold.lost().await;
        if self.is_lost() {
            reason
        } else {
            pending().await
        }
    }

    /// Returns why the lock was lost.
    pub(crate) fn loss_reason(&self) -> LossReason {
        // The clock can show the loss before a task has recorded its reason.
        let reason = self.held.hold.lost().now_or_never();
        reason.unwrap_or(LossReason::Expired)
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.held.rules
    }

    #[cfg(feature = "http")]
    pub(crate) fn keep_for_body(&self) {
        self.held.by_body.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_kept_for_body(&self) -> bool {
        self.held.by_body.load(Ordering::Relaxed)
    }
}

impl Deref for Locked {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.held.hold
    }
}

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.hold.fmt(f)
    }
}

/// Passes the lock to the inner service, inside the request.
///
/// Implemented for `()`, which does nothing, and for closures `Fn(&mut Request, Locked)`, which store the lock in
/// the request. [`Locked`] has an example.
pub trait ShareHold<Request> {
    /// Stores the lock in the request. Called once the lock is held, before the inner service is called.
    fn share(&self, request: &mut Request, lock: Locked);
}

impl<Request> ShareHold<Request> for () {
    fn share(&self, _request: &mut Request, _lock: Locked) {}
}

impl<F, Request> ShareHold<Request> for F
where
    F: Fn(&mut Request, Locked),
{
    fn share(&self, request: &mut Request, lock: Locked) {
        self(request, lock);
    }
}
