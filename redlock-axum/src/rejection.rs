use std::{convert::Infallible, time::Duration};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use redlock_tower::{KeyRejection, LockError};

use crate::Problem;

/// What a client is told that gets no lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RejectionPolicy {
    retry_after: Duration,
}

impl RejectionPolicy {
    pub(crate) fn new(retry_after: Duration) -> Self {
        Self { retry_after }
    }

    /// Turns an error into a response. Contention stays out of the 5xx, because proxies take
    /// hosts that answer with them out of service.
    pub(crate) fn respond(self, error: LockError<Infallible>) -> Response {
        match error {
            LockError::Contended(error) => {
                tracing::debug!(%error, "request gets no lock");
                Problem::new(
                    StatusCode::LOCKED,
                    "urn:redlock:problem:locked",
                    "The resource is locked",
                )
                .detail("Another request is working on this resource. Try again.")
                .retry_after(self.jittered())
            }
            LockError::Unavailable(error) => {
                tracing::warn!(%error, "request gets no lock");
                Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "urn:redlock:problem:unavailable",
                    "The lock service is unavailable",
                )
                .detail("No lock could be taken on this resource. Try again.")
                .retry_after(self.jittered())
            }
            LockError::Key(KeyRejection::Request(error)) => {
                tracing::debug!(%error, "request has no lock key");
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    "urn:redlock:problem:key",
                    "The request names no resource that can be locked",
                )
                .detail(error.to_string())
            }
            LockError::Inner(never) => match never {},
            // The layer or its options: no request can succeed before somebody mends the service.
            error => {
                tracing::error!(%error, "misconfigured redlock_axum::LockLayer");
                Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "urn:redlock:problem:misconfigured",
                    "The service is misconfigured",
                )
                .detail(format!("redlock_axum::LockLayer: {error}"))
            }
        }
        .into_response()
    }

    /// The delay and up to as much again.
    fn jittered(self) -> Duration {
        // Without randomness the delays are merely not spread.
        let random = getrandom::u32().unwrap_or(0);
        let extra = (self.retry_after.as_millis() * u128::from(random)) >> u32::BITS;
        let extra = Duration::from_millis(u64::try_from(extra).unwrap_or(u64::MAX));
        self.retry_after.saturating_add(extra)
    }
}

impl Default for RejectionPolicy {
    fn default() -> Self {
        Self::new(Duration::from_secs(1))
    }
}
