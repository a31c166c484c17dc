//! How long the callers of HTTP requests wait for their answers.

use std::time::Duration;

use http::{HeaderMap, Request};
use tokio::time::Instant;

/// Until when the caller of a request waits for its answer. It is no use to wait longer for a lock.
///
/// Found in a request's extensions, where any layer further out may put it, and in its headers:
/// `grpc-timeout`, which gRPC's clients send (["gRPC over HTTP2"][grpc]), and
/// `x-envoy-expected-rq-timeout-ms`, with which [Envoy] tells how long it waits itself. The earliest
/// counts. A client that lies about it harms nobody else.
///
/// ```
/// use std::time::Duration;
/// use redlock_tower::{CallerDeadline, LockRequest};
///
/// let order = |request: &http::Request<()>| {
///     let wanted = LockRequest::new(request.uri().path());
///     match CallerDeadline::of(request) {
///         Some(deadline) => wanted.wait_at_most(deadline.remaining()),
///         None => wanted,
///     }
/// };
/// let request = http::Request::get("/orders/42").header("grpc-timeout", "1S").body(()).unwrap();
/// let remaining = CallerDeadline::of(&request).unwrap().remaining();
/// assert!(remaining <= Duration::from_secs(1));
/// # order(&request);
/// ```
///
/// [grpc]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
/// [Envoy]: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallerDeadline(Instant);

impl CallerDeadline {
    /// The caller waits until then.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The caller waits for so long from now on. `None` if that is for ever, as far as a clock can tell.
    #[must_use]
    pub fn after(timeout: Duration) -> Option<Self> {
        Instant::now().checked_add(timeout).map(Self)
    }

    /// Finds out until when the caller of a request that has just come waits.
    ///
    /// What a header says in no form that is defined for it counts for nothing.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        let timeouts = [grpc_timeout(headers), envoy_timeout(headers)];
        let told = timeouts.into_iter().flatten().min();
        let known = request.extensions().get().copied();
        told.and_then(Self::after).into_iter().chain(known).min()
    }

    /// Returns for how long the caller still waits; zero if not any more.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// `TimeoutValue TimeoutUnit`: at most eight digits and a letter.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
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

/// Milliseconds.
fn envoy_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("x-envoy-expected-rq-timeout-ms")?;
    let millis = number(value.to_str().ok()?)?;
    // Zero is how Envoy spells no timeout.
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// Digits only: no sign, which `parse` would take.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)]) -> Option<Duration> {
        let mut request = Request::new(());
        for (name, value) in headers {
            let name = http::HeaderName::try_from(*name).unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        CallerDeadline::of(&request).map(|it| it.remaining())
    }

    #[tokio::test(start_paused = true)]
    async fn headers_tell_how_long_a_caller_waits() {
        let (grpc, envoy) = ("grpc-timeout", "x-envoy-expected-rq-timeout-ms");
        for (value, timeout) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("250m", Duration::from_millis(250)),
            ("7000u", Duration::from_millis(7)),
            ("3000000n", Duration::from_millis(3)),
            ("0S", Duration::ZERO),
        ] {
            assert_eq!(of(&[(grpc, value)]), Some(timeout), "{value}");
        }
        for value in [
            "",
            "S",
            "1",
            "1s",
            "+1S",
            "-1S",
            "1.5S",
            "123456789S",
            "1 S",
        ] {
            assert_eq!(of(&[(grpc, value)]), None, "{value}");
        }
        assert_eq!(of(&[(envoy, "250")]), Some(Duration::from_millis(250)));
        for value in ["", "0", "+1", "1s", "99999999999999999999"] {
            assert_eq!(of(&[(envoy, value)]), None, "{value}");
        }
        assert_eq!(of(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_counts() {
        let mut request = Request::new(());
        let headers = request.headers_mut();
        headers.insert("grpc-timeout", "9S".parse().unwrap());
        headers.insert("x-envoy-expected-rq-timeout-ms", "7000".parse().unwrap());
        let told = CallerDeadline::of(&request).unwrap();
        assert_eq!(told.remaining(), Duration::from_secs(7));
        let known = CallerDeadline::after(Duration::from_secs(2)).unwrap();
        request.extensions_mut().insert(known);
        assert_eq!(CallerDeadline::of(&request), Some(known));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(known.remaining(), Duration::ZERO);
        assert_eq!(CallerDeadline::after(Duration::MAX), None);
    }
}
