use std::{borrow::Cow, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_core::ser::{Serialize, SerializeMap, Serializer};

/// An error response in the form of RFC 9457, "Problem Details for HTTP APIs".
///
/// It never names the key or the holder of a lock, because keys can contain private data.
///
/// [`LockLayer`](crate::LockLayer) responds with it, and knows whether the handler ran. A handler that takes a lock in
/// its own code can convert the [`LockError`](redlock_tokio::LockError) into a problem. That problem has no
/// `handler_ran` and is not retryable, because the conversion does not know what the handler did before.
///
/// ```json
/// {
///   "type": "urn:redlock:problem:locked",
///   "title": "The resource is locked",
///   "status": 423,
///   "detail": "Another request is working on this resource. Try again later.",
///   "retryable": true,
///   "handler_ran": false,
///   "retry_after_ms": 1374
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Problem {
    /// The URI that identifies the kind of problem.
    kind: &'static str,
    /// A summary of the kind of problem, for people.
    title: &'static str,
    /// The status of the response.
    status: StatusCode,
    /// An explanation for people: what happened, and what to do about it.
    detail: Cow<'static, str>,
    /// Whether a retry of the same request is safe and may succeed.
    retryable: bool,
    /// Whether the handler ran, so that a retry could repeat its work. Absent if that is not known.
    handler_ran: Option<bool>,
    /// The number of milliseconds to wait before a retry, if a retry may help.
    retry_after_ms: Option<u64>,
}

/// The part that all problems of a kind share. [`rejection`](crate::rejection) has the table.
pub(crate) struct Kind {
    pub(crate) status: StatusCode,
    pub(crate) urn: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: &'static str,
}

/// The detail of a problem whose handler may have done something before it asked for the lock.
const RETRY_MAY_REPEAT: &str =
    "The request got no lock after it had begun. Find out what it has done before you retry.";

/// Replaces [`RETRY_MAY_REPEAT`] if the handler says that a retry is safe.
const RETRY_IS_SAFE: &str = "The request got no lock, so it has done nothing. Try again later.";

impl Problem {
    pub(crate) fn of(kind: &Kind) -> Self {
        Self {
            kind: kind.urn,
            title: kind.title,
            status: kind.status,
            detail: Cow::Borrowed(kind.detail),
            retryable: false,
            handler_ran: Some(false),
            retry_after_ms: None,
        }
    }

    pub(crate) fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Marks the problem as safe to retry after `delay`.
    ///
    /// The body contains the delay in whole milliseconds. The header `Retry-After` contains it in seconds, rounded up,
    /// and at least 1 s. The detail no longer warns of work that a retry could repeat.
    ///
    /// Call this method only if the handler has done nothing before it asked for the lock, and only for errors that a
    /// retry can cure, such as contention ([`is_contended`](redlock_tokio::LockError::is_contended)). The layer's
    /// problems are already marked.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use redlock_axum::Problem;
    /// # use redlock_tokio::Redlock;
    ///
    /// # async fn pay(redlock: Redlock) -> Result<&'static str, Problem> {
    /// let locking = redlock.lock("order:42").await; // the first step of the handler
    /// let _guard = locking.map_err(|error| {
    ///     match error.is_contended() {
    ///         true => Problem::from(error).retry_after(Duration::from_secs(1)),
    ///         false => error.into(),
    ///     }
    /// })?;
    /// # Ok("paid")
    /// # }
    /// # let _ = pay;
    /// ```
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        if self.detail == RETRY_MAY_REPEAT {
            self.detail = Cow::Borrowed(RETRY_IS_SAFE);
        }
        self.retryable = true;
        self.retry_after_ms = Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Replaces the status. One that says that the request has succeeded removes the advice to retry.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        match status.is_success() {
            true => self.settled(),
            false => self,
        }
    }

    fn settled(mut self) -> Self {
        self.retryable = false;
        self.retry_after_ms = None;
        self
    }

    pub(crate) fn handler_ran(mut self) -> Self {
        self.handler_ran = Some(true);
        self
    }

    /// Removes what only a layer can know: that the handler did not run, and that a retry is safe.
    pub(crate) fn by_hand(mut self) -> Self {
        if self.retryable {
            self.detail = Cow::Borrowed(RETRY_MAY_REPEAT);
        }
        self.handler_ran = None;
        self.settled()
    }

    /// Returns the URI that identifies the kind of problem, such as `urn:redlock:problem:locked`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the number of milliseconds to wait before a retry, if a retry may help.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }

    /// Returns whether the handler ran, so that a retry could repeat its work. Also true if that is not known.
    #[must_use]
    pub fn has_handler_run(&self) -> bool {
        self.handler_ran != Some(false)
    }

    /// Returns whether a retry of the same request is safe and may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        // Responses with these statuses must not have content (RFC 9110, section 8.6).
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
            // Whole seconds (RFC 9110, section 10.2.3), rounded up, so that no client comes back too early.
            let seconds = millis.div_ceil(1000).max(1);
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("type", self.kind)?;
        members.serialize_entry("title", self.title)?;
        members.serialize_entry("status", &self.status.as_u16())?;
        members.serialize_entry("detail", &self.detail)?;
        members.serialize_entry("retryable", &self.retryable)?;
        if let Some(handler_ran) = self.handler_ran {
            members.serialize_entry("handler_ran", &handler_ran)?;
        }
        if let Some(millis) = self.retry_after_ms {
            members.serialize_entry("retry_after_ms", &millis)?;
        }
        members.end()
    }
}
