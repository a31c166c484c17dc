use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use redlock_tower::{KeyRejection, LockError};

use crate::{LockLost, Problem};

/// What a client is told that gets no lock.
#[derive(Clone)]
pub(crate) struct RejectionPolicy {
    /// Of the layer, for the log.
    pub(crate) label: Arc<str>,
    pub(crate) retry_after: Duration,
    pub(crate) contended: StatusCode,
    pub(crate) respond: Option<Arc<Respond>>,
}

type Respond = dyn Fn(Problem) -> Response + Send + Sync;

impl RejectionPolicy {
    /// Turns an error into a response.
    pub(crate) fn respond(&self, error: LockError<Infallible>) -> Response {
        let problem = self.problem(error);
        match &self.respond {
            Some(respond) => respond(problem),
            None => problem.into_response(),
        }
    }

    /// Contention stays out of the 5xx, because proxies take hosts that answer with them out of service.
    fn problem(&self, error: LockError<Infallible>) -> Problem {
        match error {
            LockError::Contended(refusal) => {
                tracing::debug!(error = %refusal, "request gets no lock");
                Problem::new(
                    self.contended,
                    "urn:redlock:problem:locked",
                    "The resource is locked",
                )
                .detail("Another request is working on this resource. Try again.")
                .retry_after(self.jittered(refusal.expected_wait))
                .settled_if(self.contended.is_success())
            }
            LockError::QueueFull(refusal) => {
                tracing::debug!(error = %refusal, "request gets no lock");
                Problem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "urn:redlock:problem:queue-full",
                    "Too many requests wait for the resource",
                )
                .detail("Too many requests wait for this resource already. Try again later.")
                .retry_after(self.jittered(refusal.expected_wait))
            }
            LockError::WaitTooLong(refusal) => {
                tracing::debug!(error = %refusal, "request gets no lock");
                Problem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "urn:redlock:problem:wait-too-long",
                    "The expected wait exceeds the limit",
                )
                .detail("The expected wait for this resource exceeds the limit. Try again later.")
                .retry_after(self.jittered(refusal.expected_wait))
            }
            LockError::Unavailable(error) => {
                // The lock service warns of an outage, once for all requests.
                tracing::debug!(%error, "request gets no lock");
                let retry_after = match &error {
                    redlock_tokio::LockError::Quarantined { remaining, .. } => {
                        remaining.saturating_add(random_part(self.retry_after))
                    }
                    _ => self.jittered(None),
                };
                Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "urn:redlock:problem:unavailable",
                    "The lock service is unavailable",
                )
                .detail("No lock could be taken on this resource. Try again.")
                .retry_after(retry_after)
            }
            LockError::Lost(_) => LockLost::problem(),
            LockError::Key(KeyRejection::Request(error)) => {
                // Why is told to its client only: extractors name what they could not read.
                tracing::debug!("request has no lock key");
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    "urn:redlock:problem:key",
                    "The request names no resource that can be locked",
                )
                .detail(error.to_string())
            }
            LockError::Key(error @ KeyRejection::TooLarge { .. }) => {
                tracing::debug!(%error, "request has no lock key");
                Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "urn:redlock:problem:too-large",
                    "The request is too large",
                )
                .detail(error.to_string())
            }
            LockError::Key(error @ KeyRejection::TooSlow { .. }) => {
                tracing::debug!(%error, "request has no lock key");
                Problem::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "urn:redlock:problem:too-slow",
                    "The request took too long to arrive",
                )
                .detail(error.to_string())
                .retry_after(self.jittered(None))
            }
            LockError::Inner(never) => match never {},
            // The layer or its options: no request can succeed before somebody mends the service.
            error => {
                tracing::error!(policy = &*self.label, %error, "a redlock_axum::LockLayer makes no lock");
                Problem::misconfigured().detail(format!("redlock_axum::LockLayer: {error}"))
            }
        }
    }

    /// The delay, or what is expected if that is longer, and up to the delay again.
    fn jittered(&self, expected: Option<Duration>) -> Duration {
        let delay = self.retry_after.max(expected.unwrap_or_default());
        delay.saturating_add(random_part(self.retry_after))
    }
}

/// Up to that long, so that not all come back at once.
fn random_part(of: Duration) -> Duration {
    // Without randomness the delays are merely not spread.
    let random = getrandom::u32().unwrap_or(0);
    let extra = (of.as_millis() * u128::from(random)) >> u32::BITS;
    Duration::from_millis(u64::try_from(extra).unwrap_or(u64::MAX))
}

/// The status and the type that the layer would answer with, for handlers that lock by hand:
///
/// ```
/// use redlock_axum::Problem;
/// use redlock_tokio::Redlock;
///
/// async fn pay(redlock: Redlock) -> Result<&'static str, Problem> {
///     let _guard = redlock.lock("order:42").await?;
///     Ok("paid")
/// }
/// # let _ = pay;
/// ```
///
/// What the handler did before is not known here. So it says nothing about the handler, is not retryable and
/// has no `Retry-After`, unless the handler adds one with [`Problem::retry_after`].
impl From<redlock_tokio::LockError> for Problem {
    fn from(error: redlock_tokio::LockError) -> Self {
        let problem = match error {
            redlock_tokio::LockError::InvalidOptions(error) => {
                tracing::error!(%error, "a handler's own lock has options that cannot be used");
                Self::misconfigured().detail(error.to_string())
            }
            error => RejectionPolicy::default().problem(error.into()),
        };
        problem.by_hand()
    }
}

impl Default for RejectionPolicy {
    fn default() -> Self {
        Self {
            label: "default".into(),
            retry_after: Duration::from_secs(1),
            contended: StatusCode::LOCKED,
            respond: None,
        }
    }
}
