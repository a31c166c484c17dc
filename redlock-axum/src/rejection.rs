use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use redlock_tower::{CallError, KeyRejection};

use crate::{LockLost, Problem};

/// How a layer responds to a request that gets no lock.
#[derive(Clone)]
pub(crate) struct RejectionPolicy {
    /// The label of the layer, for the log.
    pub(crate) label: &'static str,
    pub(crate) retry_after: Duration,
    /// The status of contention, if the layer has set one.
    pub(crate) contended: Option<StatusCode>,
    pub(crate) respond: Option<Arc<Respond>>,
}

type Respond = dyn Fn(Problem) -> Response + Send + Sync;

impl RejectionPolicy {
    /// Turns an error into a response.
    pub(crate) fn respond(&self, error: CallError<Infallible>) -> Response {
        let problem = self.problem(error);
        match &self.respond {
            Some(respond) => respond(problem),
            None => problem.into_response(),
        }
    }

    /// Contention is not a 5xx, because proxies eject hosts that respond with those.
    fn problem(&self, error: CallError<Infallible>) -> Problem {
        match error {
            CallError::Contended(refusal) if refusal.has_permits() => {
                tracing::debug!(target: "redlock", error = %refusal, "a request gets no permit");
                let status = self.contended.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
                Problem::new(
                    status,
                    "urn:redlock:problem:no-permit",
                    "Too many requests use the resource",
                )
                .detail(
                    "As many requests as allowed are working on this resource. Try again later.",
                )
                .retry_after(self.jittered(refusal.expected_wait))
                .settled_if(status.is_success())
            }
            CallError::Contended(refusal) => {
                tracing::debug!(target: "redlock", error = %refusal, "a request gets no lock");
                let status = self.contended.unwrap_or(StatusCode::LOCKED);
                Problem::new(
                    status,
                    "urn:redlock:problem:locked",
                    "The resource is locked",
                )
                .detail(match refusal.error.attempts() {
                    Some(attempts) if attempts.by_reader() => {
                        "Another request is changing this resource, or waits to change it. Try again later."
                    }
                    Some(attempts) if attempts.by_writer() => {
                        "Other requests are reading this resource, or another one is changing it. Try again later."
                    }
                    _ => "Another request is working on this resource. Try again later.",
                })
                .retry_after(self.jittered(refusal.expected_wait))
                .settled_if(status.is_success())
            }
            CallError::QueueFull(refusal) => {
                tracing::debug!(target: "redlock", error = %refusal, "a request gets no lock");
                Problem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "urn:redlock:problem:queue-full",
                    "Too many requests wait",
                )
                .detail(if refusal.is_total() {
                    "Too many requests already wait, for this resource or for others. Try again later."
                } else {
                    "Too many requests already wait for this resource. Try again later."
                })
                .retry_after(self.jittered(refusal.expected_wait))
            }
            CallError::Unavailable(error) => {
                // The lock service itself logs a warning about the outage, once for many requests.
                tracing::debug!(target: "redlock", %error, "a request gets no lock");
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
                .detail("No lock is available for this resource. Try again later.")
                .retry_after(retry_after)
            }
            CallError::Lost(_) => LockLost::problem(),
            CallError::Key(KeyRejection::Request(error)) => {
                // The error goes to the client only, because it can contain values of the request.
                tracing::debug!(target: "redlock", "a request has no lock key");
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    "urn:redlock:problem:key",
                    "The request has no usable lock key",
                )
                .detail(error.to_string())
            }
            CallError::Key(error @ KeyRejection::TooManyKeys { .. }) => {
                tracing::debug!(target: "redlock", %error, "a request gets no lock");
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    "urn:redlock:problem:too-many-keys",
                    "The request names too many resources",
                )
                .detail(error.to_string())
            }
            CallError::Key(error @ KeyRejection::TooLarge { .. }) => {
                tracing::debug!(target: "redlock", %error, "a request gets no lock");
                Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "urn:redlock:problem:too-large",
                    "The request is too large",
                )
                .detail(error.to_string())
            }
            CallError::Key(error @ KeyRejection::TooSlow { .. }) => {
                tracing::debug!(target: "redlock", %error, "a request gets no lock");
                Problem::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "urn:redlock:problem:too-slow",
                    "The request took too long to arrive",
                )
                .detail(error.to_string())
                .retry_after(self.jittered(None))
            }
            CallError::Inner(never) => match never {},
            // The layer or its options are at fault. No request can succeed until the service is fixed.
            error => {
                tracing::error!(
                    target: "redlock",
                    label = self.label,
                    %error,
                    "a redlock_axum::LockLayer is misconfigured"
                );
                // The cause is for the log: it can name types, routes and options.
                Problem::misconfigured().detail(format!(
                    "The lock layer `{}` of this route is misconfigured. The log of the service names the cause.",
                    self.label
                ))
            }
        }
    }

    /// Returns the delay or the expected wait, whichever is longer, plus a random part of up to one delay.
    fn jittered(&self, expected: Option<Duration>) -> Duration {
        let delay = self.retry_after.max(expected.unwrap_or_default());
        delay.saturating_add(random_part(self.retry_after))
    }
}

/// Returns a random part of a duration, so that clients do not all come back at once.
fn random_part(of: Duration) -> Duration {
    // Without randomness the delays are not spread, but still valid.
    let random = getrandom::u32().unwrap_or(0);
    let extra = (of.as_millis() * u128::from(random)) >> u32::BITS;
    Duration::from_millis(u64::try_from(extra).unwrap_or(u64::MAX))
}

/// Makes the problem that the layer would respond with, for a lock in the handler's own code.
///
/// Only the layer knows what ran before. So this problem has no `handler_ran`, is not retryable and has no
/// `Retry-After`, unless the handler adds one with [`Problem::retry_after`].
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
impl From<redlock_tokio::LockError> for Problem {
    fn from(error: redlock_tokio::LockError) -> Self {
        let problem = match error {
            redlock_tokio::LockError::InvalidOptions(error) => {
                tracing::error!(
                    target: "redlock",
                    %error,
                    "a lock that a handler takes by hand has invalid options"
                );
                Self::misconfigured()
                    .detail("A lock has invalid options. The log of the service names them.")
            }
            error => RejectionPolicy::default().problem(error.into()),
        };
        problem.by_hand()
    }
}

impl Default for RejectionPolicy {
    fn default() -> Self {
        Self {
            label: "default",
            retry_after: Duration::from_secs(1),
            contended: None,
            respond: None,
        }
    }
}
