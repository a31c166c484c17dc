//! How long the callers of HTTP requests wait for their responses.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Request};
use tokio::time::Instant;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const ENVOY_TIMEOUT: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");

/// The time until which the caller of a request waits for its response. Waiting longer for a lock is useless.
///
/// [`of`](Self::of) takes the earliest deadline that it finds:
///
/// - a `CallerDeadline` in the request's extensions, from a layer further out;
/// - the header `grpc-timeout`, which gRPC clients send (["gRPC over HTTP2"][grpc]);
/// - the header `x-envoy-expected-rq-timeout-ms`, which says how long [Envoy] itself waits.
///
/// A client that sends a wrong deadline harms only itself.
///
/// ```
/// use std::time::Duration;
///
/// use http::Request;
/// use redlock_tower::{CallerDeadline, LockRequest};
///
/// fn order(request: &Request<()>) -> LockRequest {
///     let wanted = LockRequest::new(request.uri().path());
///     match CallerDeadline::of(request) {
///         Some(deadline) => wanted.wait_at_most(deadline.remaining()),
///         None => wanted,
///     }
/// }
///
/// let request = Request::get("/orders/42").header("grpc-timeout", "1S");
/// let request = request.body(())?;
/// let deadline = CallerDeadline::of(&request).expect("a deadline");
/// assert!(deadline.remaining() <= Duration::from_secs(1));
/// # order(&request);
/// # Ok::<_, http::Error>(())
/// ```
///
/// [grpc]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
/// [Envoy]: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallerDeadline(Instant);

impl CallerDeadline {
    /// Creates a deadline at this instant.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Creates a deadline after this timeout. Returns `None` if the timeout is too long for the clock.
    #[must_use]
    pub fn after(timeout: Duration) -> Option<Self> {
        Instant::now().checked_add(timeout).map(Self)
    }

    /// Finds the deadline of a request that has just arrived. Returns `None` if it has none.
    ///
    /// Headers with an invalid value are ignored.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        let timeouts = [grpc_timeout(headers), envoy_timeout(headers)];
        let from_headers = timeouts.into_iter().flatten().min();
        let from_layer = request.extensions().get().copied();
        let deadlines = from_headers.and_then(Self::after).into_iter();
        deadlines.chain(from_layer).min()
    }

    /// Returns how long the caller will still wait; zero if the deadline has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Reads `TimeoutValue TimeoutUnit`: at most eight digits and a letter.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let count = number(digits).filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 60 * 60),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Reads milliseconds.
fn envoy_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(ENVOY_TIMEOUT)?;
    let millis = number(value.to_str().ok()?)?;
    // Envoy writes zero if there is no timeout.
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// Reads digits only. `parse` would accept a sign too.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remaining(headers: &[(&str, &str)]) -> Option<Duration> {
        let mut request = Request::new(());
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        CallerDeadline::of(&request).map(|deadline| deadline.remaining())
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_sets_the_deadline() {
        let (grpc, envoy) = ("grpc-timeout", "x-envoy-expected-rq-timeout-ms");
        let millis = Duration::from_millis;
        for (header, value, timeout) in [
            (grpc, "1H", millis(3_600_000)),
            (grpc, "2M", millis(120_000)),
            (grpc, "99999999S", millis(99_999_999_000)),
            (grpc, "250m", millis(250)),
            (grpc, "7000u", millis(7)),
            (grpc, "3000000n", millis(3)),
            (grpc, "0S", Duration::ZERO),
            (envoy, "250", millis(250)),
        ] {
            assert_eq!(remaining(&[(header, value)]), Some(timeout), "{value}");
        }
        for value in "1 1s +1S -1S 1.5S 123456789S"
            .split(' ')
            .chain(["", "S", "1 S"])
        {
            assert_eq!(remaining(&[(grpc, value)]), None, "{value}");
        }
        for value in ["", "0", "+1", "1s", "99999999999999999999"] {
            assert_eq!(remaining(&[(envoy, value)]), None, "{value}");
        }
        assert_eq!(remaining(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_deadline_counts() {
        let mut request = Request::new(());
        let headers = request.headers_mut();
        headers.insert("grpc-timeout", "9S".parse().unwrap());
        headers.insert("x-envoy-expected-rq-timeout-ms", "7000".parse().unwrap());
        let from_headers = CallerDeadline::of(&request).unwrap();
        assert_eq!(from_headers.remaining(), Duration::from_secs(7));
        let from_layer = CallerDeadline::after(Duration::from_secs(2)).unwrap();
        request.extensions_mut().insert(from_layer);
        assert_eq!(CallerDeadline::of(&request), Some(from_layer));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(from_layer.remaining(), Duration::ZERO);
        assert_eq!(CallerDeadline::after(Duration::MAX), None);
    }
}
