//! Addresses as the nodes of a cluster write them.

use crate::node::redis::connect::Endpoint;

/// Returns the endpoint at a host and a port, or `None` if there can be no server.
pub(super) fn tcp(host: &str, port: u16) -> Option<Endpoint> {
    let is_odd = |it: char| it.is_whitespace() || it.is_control() || matches!(it, '[' | ']');
    if host.is_empty() || host.contains(is_odd) || port == 0 {
        return None;
    }
    Some(Endpoint::Tcp {
        host: host.to_lowercase().into(),
        port,
    })
}

/// Reads `host:port`. An IPv6 address is in brackets.
pub(super) fn parse(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    match host.strip_prefix('[') {
        Some(host) => tcp(host.strip_suffix(']')?, port),
        None if host.contains(':') => None,
        None => tcp(host, port),
    }
}

/// Returns the host, if there is one.
pub(super) fn host(endpoint: &Endpoint) -> Option<&str> {
    match endpoint {
        Endpoint::Tcp { host, .. } => Some(host),
        Endpoint::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_they_are_shown() {
        for text in ["a:1", "10.0.0.1:6379", "[2001:db8::1]:6379"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "a", "a:", ":1", "a:0", "a:70000", "::1:6379", "[::1:1", "a b:1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
