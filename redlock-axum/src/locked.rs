use std::{convert::Infallible, fmt, iter::successors, ops::Deref, sync::Arc};

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts, Request},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use futures::future::select_all;
use redlock_tokio::{Hold, Key, LockGuard, LossReason, Redlock, ReleaseReport};
use redlock_tower::{KeyRejection, LockRequest};
use thiserror::Error;

use crate::{
    Problem,
    rejection::{LOST, MISCONFIGURED},
};

/// Extracts the lock that a handler runs under.
///
/// The layer keeps the lock until the handler has responded. Clones refer to the same lock. Any of them can
/// [release](Self::release_early) the lock or [take it over](Self::into_owned). `Locked` also has the methods of
/// [`Hold`], such as [`remaining`](Hold::remaining) and [`extend`](Hold::extend).
///
/// ```
/// use redlock_axum::{LockLost, Locked};
///
/// async fn pay(locked: Locked) -> Result<&'static str, LockLost> {
///     // .. long work ..
///     locked.ensure()?; // just before the step that must not be done twice
///     Ok("paid")
/// }
/// # let _ = axum::routing::post(pay) as axum::routing::MethodRouter;
/// ```
///
/// If there are several layers around the handler, this is the lock of the innermost one that took a lock. Releasing it
/// or taking it over changes nothing for the others.
///
/// `Option<Locked>` is `None` for requests that pass without a lock, such as those with safe methods. Without the
/// `Option` such a request gets a [`LockedRejection`]. Behind [`read_write`](crate::LockLayer::read_write) each request
/// has a lock, and [`is_reader`](Hold::is_reader) tells which kind.
#[derive(Clone)]
pub struct Locked {
    lock: redlock_tower::Locked,
    /// The lock service of the layer.
    redlock: Redlock,
    /// The lock of the next layer further out.
    outer: Option<Arc<Self>>,
}

impl Locked {
    /// Checks that the lock is still held. Call it just before a step that needs the lock.
    ///
    /// If there are several layers around the handler, checks that none of them has lost its lock.
    ///
    /// Reads the clock and costs no round trip. See [`Hold::is_valid`] for the limits of this check, and for when it
    /// detects that another client has deleted the key on the nodes.
    ///
    /// # Errors
    ///
    /// Fails if the lock is lost or was released. The error is a response.
    pub fn ensure(&self) -> Result<(), LockLost> {
        let is_any_lost = self.with_outer().any(|locked| locked.lock.is_lost());
        if self.is_valid() && !is_any_lost {
            Ok(())
        } else {
            Err(LockLost)
        }
    }

    /// Waits until the lock is lost, and returns why. Use it in a `select!` beside long work.
    ///
    /// If there are several layers around the handler, waits for the first loss of any of their locks.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        let losses = self
            .with_outer()
            .map(|locked| Box::pin(locked.lock.hold().lost()));
        let (reason, ..) = select_all(losses).await;
        reason
    }

    /// Releases the lock before the handler ends, and waits until a majority of nodes has confirmed the release; see
    /// [`LockGuard::release`] for its cost and its cancel safety.
    ///
    /// Returns `None` if the lock was already released or taken over, or the handler has ended. If the lock is lost,
    /// the report says [`NotHeld`](redlock_tokio::ReleaseOutcome::NotHeld).
    pub async fn release_early(self) -> Option<ReleaseReport> {
        self.lock.release_early().await
    }

    /// Takes the lock over, for work that goes on after the handler, such as a stream, a task or a WebSocket.
    ///
    /// The layer no longer releases the lock. It is held for as long as the guard lives, but is renewed for at most
    /// [`max_hold`](crate::LockLayer::max_hold). [`LockGuard::into_ticket`] passes it on to a worker in another
    /// process:
    ///
    /// ```
    /// use axum::http::StatusCode;
    /// use redlock_axum::{LockLost, Locked};
    ///
    /// async fn accept(locked: Locked) -> Result<StatusCode, LockLost> {
    ///     let guard = locked.into_owned().ok_or(LockLost)?;
    ///     let ticket = guard.into_ticket().map_err(|_| LockLost)?;
    ///     // .. the ticket goes into the job; the worker calls `redlock.adopt(ticket)` ..
    ///     # let _ = ticket;
    ///     Ok(StatusCode::ACCEPTED)
    /// }
    /// # let _ = axum::routing::post(accept) as axum::routing::MethodRouter;
    /// ```
    ///
    /// Returns `None` if the lock was already released or taken over, or the handler has ended. If the lock is lost,
    /// returns a guard that is not valid.
    #[must_use = "the lock is released as soon as the guard is dropped"]
    pub fn into_owned(self) -> Option<LockGuard> {
        self.lock.into_owned()
    }

    /// Puts the lock of a layer into the request, for the handler and for layers further in.
    pub(crate) fn insert(request: &mut Request, lock: redlock_tower::Locked, redlock: Redlock) {
        let extensions = request.extensions_mut();
        let outer = extensions.remove().map(Arc::new);
        extensions.insert(Self {
            lock,
            redlock,
            outer,
        });
    }

    /// Returns whether this lock, or one of a layer further out, is valid and serves a request for this key in this
    /// lock service, or why the request would wait for that lock.
    pub(crate) fn serves(
        &self,
        wanted: &LockRequest,
        key: &[u8],
        redlock: &Redlock,
    ) -> Result<bool, KeyRejection> {
        let is_key = |held: &Key| held.as_bytes().strip_prefix(redlock.prefix()) == Some(key);
        let mut with_key = self.with_outer().filter(|locked| {
            locked.redlock.is_same(redlock) && locked.keys().any(is_key) && locked.is_valid()
        });
        with_key.try_fold(false, |serves, locked| {
            Ok(serves || wanted.is_served_by(locked)?)
        })
    }

    /// Returns this lock, and those of the layers further out.
    fn with_outer(&self) -> impl Iterator<Item = &Self> {
        successors(Some(self), |locked| locked.outer.as_deref())
    }
}

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl Deref for Locked {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.lock.hold()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Locked {
    type Rejection = LockedRejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, LockedRejection> {
        parts.extensions.get().cloned().ok_or(LockedRejection)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Locked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The error of [`Locked::ensure`]: the lock was lost while its handler ran.
///
/// As a response it is a 500 with `"handler_ran": true`. The handler may have done some of its work, so a retry may not
/// be safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the lock was lost while its handler ran")]
pub struct LockLost;

impl IntoResponse for LockLost {
    fn into_response(self) -> Response {
        Problem::of(&LOST).handler_ran().into_response()
    }
}

/// The rejection of [`Locked`]: the handler runs without a lock.
///
/// As a response it is a 500. The log names the fix, and so does this error as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error(
    "this handler runs without a lock: add a redlock_axum::LockLayer to its route \
     (a layer wraps the routes that were added before it), \
     call all_methods() or read_write() on the layer if the request's method is a safe one, or extract Option<Locked>"
)]
pub struct LockedRejection;

impl LockedRejection {
    const DETAIL: &str =
        "The handler of this route expects a lock, and has none. The service's log names the fix.";

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        MISCONFIGURED.status
    }

    /// Returns the text of the response's `detail`.
    #[must_use]
    pub fn body_text(&self) -> String {
        Self::DETAIL.to_owned()
    }
}

impl IntoResponse for LockedRejection {
    fn into_response(self) -> Response {
        tracing::error!(target: "redlock", error = %self, "a handler that extracts Locked runs without a lock");
        let problem = Problem::of(&MISCONFIGURED).detail(Self::DETAIL);
        problem.into_response()
    }
}
