use std::{error::Error, time::Duration};

use axum::body::{Body, Bytes, to_bytes};
use http_body_util::LengthLimitError;
use redlock_tower::{CallerDeadline, KeyRejection};
use tokio::time::timeout;

/// How many bytes of a body a layer reads for a key, and how long it waits for them: 10 s by default.
///
/// A number of bytes converts into a limit, as in `json_field("order", 4096)`.
///
/// ```
/// use std::time::Duration;
///
/// use redlock_axum::{BodyLimit, json_field, key};
///
/// let limit = BodyLimit::new(4096).time(Duration::from_secs(2));
/// let order = key("order", json_field("order.id", limit));
/// # drop(order);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BodyLimit {
    bytes: usize,
    time: Duration,
}

impl BodyLimit {
    const TIME: Duration = Duration::from_secs(10);

    /// Limits a body to this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes,
            time: Self::TIME,
        }
    }

    /// Sets how long to wait for the whole body. The request's [`CallerDeadline`](crate::CallerDeadline) can end the
    /// wait earlier.
    pub fn time(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Returns the stricter of both limits.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            time: self.time.min(other.time),
        }
    }

    /// Reads a body to its end.
    pub(super) async fn read(
        self,
        body: Body,
        caller: Option<CallerDeadline>,
    ) -> Result<Bytes, KeyRejection> {
        let limit = caller.map_or(self.time, |it| it.remaining().min(self.time));
        match timeout(limit, to_bytes(body, self.bytes)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(self.unreadable(&error)),
            Err(_) => Err(KeyRejection::TooSlow { limit }),
        }
    }

    fn unreadable(self, error: &axum::Error) -> KeyRejection {
        let is_too_large = error.source().is_some_and(|it| it.is::<LengthLimitError>());
        if is_too_large {
            KeyRejection::TooLarge { limit: self.bytes }
        } else {
            KeyRejection::request(format!("the body cannot be read: {error}"))
        }
    }
}

impl From<usize> for BodyLimit {
    fn from(bytes: usize) -> Self {
        Self::new(bytes)
    }
}
