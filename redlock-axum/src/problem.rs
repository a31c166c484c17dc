use std::{borrow::Cow, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Serialize, Serializer};

/// An error response in the form of RFC 9457, "Problem Details for HTTP APIs".
///
/// It never names the key or the holder of a lock: keys may carry what the client must not see.
///
/// [`LockLayer`](crate::LockLayer) answers with it, and knows whether the handler ran. A `Problem` that a
/// handler makes from the [`LockError`](redlock_tokio::LockError) of a lock that it takes by hand has no
/// `handler_ran`, and calls no retry safe: what the handler did before is not known.
///
/// ```json
/// {
///   "type": "urn:redlock:problem:locked",
///   "title": "The resource is locked",
///   "status": 423,
///   "detail": "Another request is working on this resource. Try again.",
///   "retryable": true,
///   "handler_ran": false,
///   "retry_after_ms": 1374
/// }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The URI that tells problems apart.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What it is, for people.
    title: &'static str,
    /// The status of the response.
    #[serde(serialize_with = "as_number")]
    #[cfg_attr(feature = "utoipa", schema(value_type = u16))]
    status: StatusCode,
    /// What to do about it, for people.
    detail: Cow<'static, str>,
    /// Whether the same request may succeed later, and does no harm if it does.
    retryable: bool,
    /// Whether the handler ran, so that a retry may do twice what it did. Absent if that is not known.
    #[serde(rename = "handler_ran", skip_serializing_if = "HandlerRun::is_unknown")]
    #[cfg_attr(feature = "utoipa", schema(value_type = bool, required = false))]
    handler_run: HandlerRun,
    /// After how many milliseconds to come back, if that may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// What is known of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandlerRun {
    NotBegun,
    Begun,
    Unknown,
}

impl HandlerRun {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes fields by reference"
    )]
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

impl Serialize for HandlerRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Of what is not known, nothing is written.
        serializer.serialize_bool(*self != Self::NotBegun)
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &'static str, title: &'static str) -> Self {
        Self {
            kind,
            title,
            status,
            detail: Cow::Borrowed(title),
            retryable: false,
            handler_run: HandlerRun::NotBegun,
            retry_after_ms: None,
        }
    }

    /// No request can succeed before somebody mends the service.
    pub(crate) fn misconfigured() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "urn:redlock:problem:misconfigured",
            "The service is misconfigured",
        )
    }

    pub(crate) fn detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self { detail, ..self }
    }

    /// Says that a retry is safe, and after how long to come back: for a handler that locks by hand before
    /// it does anything else. The layer's problems say so by themselves.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use redlock_axum::Problem;
    /// # use redlock_tokio::Redlock;
    ///
    /// # async fn pay(redlock: Redlock) -> Result<&'static str, Problem> {
    /// let locking = redlock.lock("order:42").await; // the first thing that the handler does
    /// let _guard = locking.map_err(|error| Problem::from(error).retry_after(Duration::from_secs(1)))?;
    /// # Ok("paid")
    /// # }
    /// # let _ = pay;
    /// ```
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Self {
            retryable: true,
            retry_after_ms: Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            ..self
        }
    }

    /// Takes back that a retry may help, for a client that is told that all is well.
    pub(crate) fn settled_if(self, is_settled: bool) -> Self {
        Self {
            retryable: self.retryable && !is_settled,
            retry_after_ms: self.retry_after_ms.filter(|_| !is_settled),
            ..self
        }
    }

    pub(crate) fn handler_ran(self) -> Self {
        Self {
            handler_run: HandlerRun::Begun,
            ..self
        }
    }

    /// Takes back what only a layer can know: that the handler did nothing, and that a retry is safe.
    pub(crate) fn by_hand(self) -> Self {
        let detail = if self.retryable {
            "The lock was needed half-way. Find out what the request has done before a retry."
                .into()
        } else {
            self.detail.clone()
        };
        Self {
            detail,
            handler_run: HandlerRun::Unknown,
            ..self.settled_if(true)
        }
    }

    /// Returns the URI that tells problems of this crate apart.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns after how long to come back, if that may help.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }

    /// Returns whether the handler ran, so that a retry may do twice what it did. True if that is not known:
    /// false only where it is certain that the handler did not run.
    #[must_use]
    pub fn has_handler_run(&self) -> bool {
        self.handler_run != HandlerRun::NotBegun
    }

    /// Returns whether the same request may succeed later, and does no harm if it does.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        // The others have no content, and must not say that they had some (RFC 9110, section 8.6).
        let no_content = [
            StatusCode::NO_CONTENT,
            StatusCode::RESET_CONTENT,
            StatusCode::NOT_MODIFIED,
        ];
        if !no_content.contains(&self.status) {
            // Strings and numbers always serialise.
            *response.body_mut() = serde_json::to_vec(&self).unwrap_or_default().into();
            let kind = HeaderValue::from_static("application/problem+json");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(millis) = self.retry_after_ms {
            // Whole seconds (RFC 9110, section 10.2.3), rounded up: not before it is worth it, nor at once.
            let seconds = millis.div_ceil(1000).max(1);
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn as_number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
