use std::{convert::Infallible, fmt, ops::Deref, sync::Arc};

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts, Request},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use redlock_tokio::{Hold, Key, LockGuard, LossReason, Redlock, ReleaseReport};
use redlock_tower::ShareHold;
use thiserror::Error;

use crate::Problem;

/// Extracts the lock that a handler runs under.
///
/// It is a view: the layer keeps the lock until the handler has answered.
///
/// ```
/// # use axum::response::IntoResponse;
/// use redlock_axum::{LockLost, Locked};
///
/// async fn pay(locked: Locked) -> Result<String, LockLost> {
///     // .. long work ..
///     locked.ensure()?; // just before the step that must not be done twice
///     Ok(format!("{:?} left", locked.remaining()))
/// }
/// # fn is_response<T: IntoResponse>(_: &T) {}
/// # fn check(result: Result<String, LockLost>) { is_response(&result) }
/// ```
///
/// `Option<Locked>` is `None` for requests that pass without a lock, such as those with safe
/// methods.
#[derive(Clone)]
pub struct Locked {
    lock: redlock_tower::Locked,
    /// The lock service that it is from.
    redlock: Redlock,
    /// The lock of the next layer further out, if there is one.
    outer: Option<Arc<Self>>,
}

impl Locked {
    /// Checks that the lock is still held, just before a step that must not be done without it.
    ///
    /// Reads the clock, asks no node and costs no round trip. If somebody deletes the key on the nodes, the
    /// next renewal notices it, a third of the ttl later at most by default. See [`Hold::is_valid`] for what it cannot know.
    ///
    /// # Errors
    ///
    /// Fails if the lock is lost, with an error that is a response.
    pub fn ensure(&self) -> Result<(), LockLost> {
        if self.lock.hold().is_valid() {
            Ok(())
        } else {
            Err(LockLost)
        }
    }

    /// Waits until the lock is lost. For the other end of a `select!` over long work.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) -> LossReason {
        self.lock.hold().lost().await
    }

    /// Releases the lock before the handler is done, and waits until a majority of nodes has confirmed
    /// it. `None` if that was done before.
    pub async fn release_early(self) -> Option<ReleaseReport> {
        self.lock.release_early().await
    }

    /// Takes the lock over: it is held for as long as the guard lives, and not to the end of the handler.
    /// For a stream, a task or a WebSocket that goes on under it.
    ///
    /// `None` if somebody has taken or released it.
    #[must_use = "the lock is released as soon as the guard is dropped"]
    pub fn into_owned(self) -> Option<LockGuard> {
        self.lock.into_owned()
    }

    /// Returns the view of the lock, to be handed on.
    #[must_use]
    pub fn into_inner(self) -> Hold {
        self.lock.hold().clone()
    }

    /// Returns whether this lock, or that of a layer further out, is valid and has this key of a lock service.
    pub(crate) fn holds(&self, redlock: &Redlock, key: &[u8]) -> bool {
        let is_key = |held: &Key| held.as_bytes().strip_prefix(redlock.prefix()) == Some(key);
        let has_key = self.redlock.is_same(redlock) && self.keys().any(is_key) && self.is_valid();
        has_key || self.outer.as_ref().is_some_and(|it| it.holds(redlock, key))
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

/// Puts the lock where [`Locked`] and the layers further in find it.
#[derive(Clone)]
pub(crate) struct InsertLocked(pub(crate) Redlock);

impl ShareHold<Request> for InsertLocked {
    fn share(&self, request: &mut Request, lock: redlock_tower::Locked) {
        let extensions = request.extensions_mut();
        let outer = extensions.remove().map(Arc::new);
        extensions.insert(Locked {
            lock,
            redlock: self.0.clone(),
            outer,
        });
    }
}

/// The lock was lost while its handler worked.
///
/// As a response it is a 500: what the handler had done by then is done, and whether a retry is
/// safe is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the lock was lost while its handler worked")]
pub struct LockLost;

impl LockLost {
    pub(crate) fn problem() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "urn:redlock:problem:lost",
            "The lock was lost",
        )
        .detail(
            "The request lost its protection against others half-way. Find out what it has done before \
             a retry.",
        )
        .handler_ran()
    }
}

impl IntoResponse for LockLost {
    fn into_response(self) -> Response {
        Self::problem().into_response()
    }
}

/// There is no lock around this handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this handler runs without a lock: add a redlock_axum::LockLayer to its route \
     (a layer is around the routes that were added before it), \
     call all_methods() on it if the request's method is a safe one, or extract Option<Locked>"
)]
pub struct LockedRejection;

impl IntoResponse for LockedRejection {
    fn into_response(self) -> Response {
        tracing::error!("{self}");
        Problem::misconfigured()
            .detail(self.to_string())
            .into_response()
    }
}
