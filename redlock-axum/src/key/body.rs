use std::{error::Error, time::Duration};

use axum::body::{Body, Bytes, to_bytes};
use http_body_util::LengthLimitError;
use redlock_tower::{CallerDeadline, KeyRejection};
use tokio::time::timeout;

/// How much of a body is read for a key, and how long a layer waits for it: 10 s by default.
///
/// A number of bytes can stand for it: `json_field("order", 4096)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BodyLimit {
    bytes: usize,
    time: Duration,
}

impl BodyLimit {
    const TIME: Duration = Duration::from_secs(10);

    /// Reads a body with up to so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes,
            time: Self::TIME,
        }
    }

    /// Sets how long to wait for the whole body. It is never longer than the request's
    /// [`CallerDeadline`](crate::CallerDeadline) leaves.
    pub fn time(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Returns what both allow.
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
