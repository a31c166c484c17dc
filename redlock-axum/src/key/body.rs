use std::time::Duration;

use axum::{
    body::{Body, Bytes, HttpBody},
    http::HeaderMap,
};
use futures::future::ready;
use http_body_util::{BodyExt, Full};
use redlock_tower::{CallerDeadline, KeyRejection};
use tokio::time::timeout;

/// How many bytes of a request's body a layer reads before it waits for the lock, and how long it waits for them: 30 s
/// by default.
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
    /// The limit of axum's extractors, such as `Json`: what they accept by default, the layer reads.
    pub(crate) const DEFAULT: Self = Self::new(2 * 1024 * 1024);

    /// The largest body of a layer by default then takes 70 kB/s, which a slow phone has. No lock is held meanwhile.
    const TIME: Duration = Duration::from_secs(30);

    /// Limits a body to this many bytes.
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            time: Self::TIME,
        }
    }

    /// Sets how long to wait for the whole body. The request's [`CallerDeadline`](crate::CallerDeadline) can end the
    /// wait earlier.
    pub const fn time(self, time: Duration) -> Self {
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
    ) -> Result<WholeBody, KeyRejection> {
        // Most bodies say how long they are. One that is too large need not be sent.
        if body.size_hint().lower() > self.bytes as u64 {
            return Err(KeyRejection::TooLarge { limit: self.bytes });
        }
        let limit = caller.map_or(self.time, |deadline| deadline.remaining().min(self.time));
        let body = timeout(limit, self.collect(body)).await;
        body.unwrap_or(Err(KeyRejection::TooSlow { limit }))
    }

    /// Joins the pieces as they come. A client can send single bytes, and each would take 50 bytes in a list.
    async fn collect(self, mut body: Body) -> Result<WholeBody, KeyRejection> {
        let (mut bytes, mut trailers) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                KeyRejection::request(format!("the body cannot be read: {error}"))
            })?;
            match frame.into_data() {
                Ok(piece) if piece.len() > self.bytes - bytes.len() => {
                    return Err(KeyRejection::TooLarge { limit: self.bytes });
                }
                // Most bodies come in one piece, which need not be copied.
                Ok(piece) if bytes.is_empty() && body.is_end_stream() => {
                    let bytes = piece;
                    return Ok(WholeBody { bytes, trailers });
                }
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let bytes = bytes.into();
        Ok(WholeBody { bytes, trailers })
    }
}

impl From<usize> for BodyLimit {
    fn from(bytes: usize) -> Self {
        Self::new(bytes)
    }
}

/// Marks a request whose body was read for its key, so that the layer need not read it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyHasArrived;

/// A body that has arrived, in one piece.
pub(super) struct WholeBody {
    pub(super) bytes: Bytes,
    trailers: Option<HeaderMap>,
}

impl From<WholeBody> for Body {
    fn from(body: WholeBody) -> Self {
        let bytes = Full::new(body.bytes);
        match body.trailers {
            Some(trailers) => Self::new(bytes.with_trailers(ready(Some(Ok(trailers))))),
            None => Self::new(bytes),
        }
    }
}
