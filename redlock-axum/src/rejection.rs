use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use redlock_tower::{CallError, KeyRejection};

use crate::{Problem, problem::Kind};

/// The kinds of problems. An empty detail is that of the error.
macro_rules! kinds {
    ($($name:ident: $status:ident, $kind:literal, $title:literal, $detail:literal;)*) => {$(
        pub(crate) const $name: Kind = Kind {
            status: StatusCode::$status,
            urn: concat!("urn:redlock:problem:", $kind),
            title: $title,
            detail: $detail,
        };
    )*};
}

kinds! {
    LOCKED: LOCKED, "locked", "The resource is locked",
        "Another request is working on this resource. Try again later.";
    LOCKED_FOR_READERS: LOCKED, "locked", "The resource is locked",
        "Another request is changing this resource, or waits to change it. Try again later.";
    LOCKED_FOR_WRITERS: LOCKED, "locked", "The resource is locked",
        "Other requests are reading this resource, or another one is changing it. Try again later.";
    NO_PERMIT: TOO_MANY_REQUESTS, "no-permit", "Too many requests use the resource",
        "As many requests as allowed are working on this resource. Try again later.";
    QUEUE_FULL: TOO_MANY_REQUESTS, "queue-full", "Too many requests wait",
        "Too many requests already wait for this resource. Try again later.";
    LAYER_QUEUE_FULL: TOO_MANY_REQUESTS, "queue-full", "Too many requests wait",
        "Too many requests already wait, for this resource or for others. Try again later.";
    UNAVAILABLE: SERVICE_UNAVAILABLE, "unavailable", "The lock service is unavailable",
        "No lock is available for this resource. Try again later.";
    LOST: INTERNAL_SERVER_ERROR, "lost", "The lock was lost",
        "The request lost its lock before it was finished. Find out what it has done before you retry.";
    NO_KEY: BAD_REQUEST, "key", "The request has no usable lock key", "";
    TOO_MANY_KEYS: BAD_REQUEST, "too-many-keys", "The request names too many resources", "";
    TOO_LARGE: PAYLOAD_TOO_LARGE, "too-large", "The request is too large", "";
    TOO_SLOW: REQUEST_TIMEOUT, "too-slow", "The request took too long to arrive", "";
    MISCONFIGURED: INTERNAL_SERVER_ERROR, "misconfigured", "The service is misconfigured", "";
}

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
            CallError::Contended(refusal) => {
                note(&refusal);
                let kind = match refusal.error.attempts() {
                    _ if refusal.has_permits() => &NO_PERMIT,
                    Some(attempts) if attempts.by_reader() => &LOCKED_FOR_READERS,
                    Some(attempts) if attempts.by_writer() => &LOCKED_FOR_WRITERS,
                    _ => &LOCKED,
                };
                let problem = Problem::of(kind).retry_after(self.jittered(refusal.expected_wait));
                match self.contended {
                    Some(status) => problem.with_status(status),
                    None => problem,
                }
            }
            CallError::QueueFull(refusal) => {
                note(&refusal);
                let kind = match refusal.is_total() {
                    true => &LAYER_QUEUE_FULL,
                    false => &QUEUE_FULL,
                };
                Problem::of(kind).retry_after(self.jittered(refusal.expected_wait))
            }
            CallError::Unavailable(error) => {
                // The lock service itself logs a warning about the outage, once for many requests.
                note(&error);
                let retry_after = match &error {
                    redlock_tokio::LockError::Quarantined { remaining, .. } => {
                        remaining.saturating_add(random_part(self.retry_after))
                    }
                    _ => self.jittered(None),
                };
                Problem::of(&UNAVAILABLE).retry_after(retry_after)
            }
            CallError::Lost(_) => Problem::of(&LOST).handler_ran(),
            CallError::Key(KeyRejection::Request(error)) => {
                // The error goes to the client only, because it can contain values of the request.
                tracing::debug!(target: "redlock", "a request has no lock key");
                Problem::of(&NO_KEY).detail(error.to_string())
            }
            CallError::Key(ref error @ KeyRejection::TooManyKeys { .. }) => {
                noted(&TOO_MANY_KEYS, error)
            }
            CallError::Key(ref error @ KeyRejection::TooLarge { .. }) => noted(&TOO_LARGE, error),
            CallError::Key(ref error @ KeyRejection::TooSlow { .. }) => {
                noted(&TOO_SLOW, error).retry_after(self.jittered(None))
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
                Problem::of(&MISCONFIGURED).detail(format!(
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

fn note(error: &dyn fmt::Display) {
    tracing::debug!(target: "redlock", %error, "a request gets no lock");
}

fn noted(kind: &Kind, error: &KeyRejection) -> Problem {
    note(error);
    Problem::of(kind).detail(error.to_string())
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
impl From<redlock_tokio::LockError> for Problem {
    fn from(error: redlock_tokio::LockError) -> Self {
        let problem = match error {
            redlock_tokio::LockError::InvalidOptions(error) => {
                tracing::error!(
                    target: "redlock",
                    %error,
                    "a lock that a handler takes by hand has invalid options"
                );
                Self::of(&MISCONFIGURED)
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

#[cfg(test)]
mod tests {
    use redlock_tokio::{LockError, test_util::TestNodes};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_retry_after_says_when_the_nodes_will_vote() {
        let nodes = TestNodes::new();
        nodes.go_down();
        let refused = nodes.connect().await.unwrap().try_lock("k").await;
        let error = LockError::Quarantined {
            remaining: Duration::from_secs(10),
            attempts: refused.unwrap_err().attempts().unwrap().clone(),
        };
        let problem = RejectionPolicy::default().problem(CallError::Unavailable(error));
        // Up to a second is added, so that clients do not all come back at once.
        let retry_after = problem.retry_after_ms().unwrap();
        assert!((10_000..=11_000).contains(&retry_after), "{retry_after}");
    }
}
