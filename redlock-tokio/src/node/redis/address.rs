//! Addresses as people and servers write them.

use std::{fmt, path::Path, sync::Arc};

use deadpool_redis::redis::ConnectionAddr;
use thiserror::Error;

use super::server_error::shorten;
use crate::{foreign, node::NodeError};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Endpoint {
    /// The host is in lower case, and an IPv6 address has no brackets.
    Tcp {
        host: Arc<str>,
        port: u16,
    },
    Unix(Arc<Path>),
}

/// Why a text is not `host:port`. Does not repeat the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum AddressError {
    #[error("the host is empty")]
    NoHost,
    #[error("the host has a character that no host has")]
    InvalidHost,
    #[error("an IPv6 address must be in brackets, and nothing else may be in brackets")]
    Brackets,
    #[error("the port is missing")]
    NoPort,
    #[error("the port is not a number from 1 to 65535")]
    InvalidPort,
}

/// Translates an address that a server announces to one that this client reaches. `None` leaves the address as it is.
pub(crate) type AddressMap = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl Endpoint {
    /// Returns the endpoint of an address, or `None` if the address is of an unknown kind.
    pub(super) fn of(addr: &ConnectionAddr) -> Option<Self> {
        match addr {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self::Tcp {
                    host: host.to_lowercase().into(),
                    port: *port,
                })
            }
            ConnectionAddr::Unix(path) => Some(Self::Unix(path.as_path().into())),
            _ => None,
        }
    }

    /// Returns the endpoint at a host and a port. An IPv6 address has no brackets.
    pub(super) fn tcp(host: &str, port: u16) -> Result<Self, AddressError> {
        let is_odd = |it: char| it.is_whitespace() || it.is_control() || "/?#@,[]".contains(it);
        if host.is_empty() {
            return Err(AddressError::NoHost);
        }
        if host.contains(is_odd) {
            return Err(AddressError::InvalidHost);
        }
        if port == 0 {
            return Err(AddressError::InvalidPort);
        }
        Ok(Self::Tcp {
            host: host.to_lowercase().into(),
            port,
        })
    }

    /// Reads `host:port`, or `host` alone if there is a default port. An IPv6 address is in brackets.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<Self, AddressError> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(AddressError::Brackets)?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if text.starts_with('[') && !host.is_empty() && !host.contains(':') {
            return Err(AddressError::Brackets);
        }
        let port = match rest.strip_prefix(':') {
            Some(digits) => port(digits)?,
            None if rest.is_empty() => default_port.ok_or(AddressError::NoPort)?,
            None => return Err(AddressError::Brackets),
        };
        Self::tcp(host, port)
    }

    /// Returns where this client reaches the server that announces this address.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if the map returns no address or panics, or if the server announces none.
    pub(super) fn announced(address: &str, map: Option<&AddressMap>) -> Result<Self, NodeError> {
        let panicked = || {
            let text = format!("the function that translates addresses panicked at `{address}`");
            NodeError::Misconfigured(shorten(text).into())
        };
        let mapped = match map {
            Some(map) => foreign::call(|| map(address)).ok_or_else(panicked)?,
            None => None,
        };
        let address = mapped.as_deref().unwrap_or(address);
        Self::parse(address, None).map_err(|error| {
            let text = format!("`{address}` is not host:port: {error}");
            NodeError::Misconfigured(shorten(text).into())
        })
    }

    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(_) => None,
        }
    }
}

fn port(digits: &str) -> Result<u16, AddressError> {
    if digits.contains(':') {
        return Err(AddressError::Brackets);
    }
    // A sign would be accepted otherwise.
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    let port = digits.parse().ok().filter(|_| is_number);
    port.ok_or(AddressError::InvalidPort)
}

/// The address as [`Endpoint::parse`] reads it.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_shown() {
        for (text, shown) in [
            ("S1.internal", "s1.internal:26379"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("[FE80::1]", "[fe80::1]:26379"),
            ("[fe80::1%eth0]:7", "[fe80::1%eth0]:7"),
            ("a:65535", "a:65535"),
        ] {
            let endpoint = Endpoint::parse(text, Some(26379)).unwrap();
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!(Endpoint::parse(shown, None), Ok(endpoint));
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_with_its_defect() {
        use AddressError::{Brackets, InvalidHost, InvalidPort, NoHost};
        for (text, defect) in [
            ("", NoHost),
            (":7", NoHost),
            ("[]:7", NoHost),
            ("a b:7", InvalidHost),
            ("a\0b:7", InvalidHost),
            ("a\u{7f}:7", InvalidHost),
            ("[::1\n]:7", InvalidHost),
            ("a]:7", InvalidHost),
            ("user@a:7", InvalidHost),
            ("fe80::1", Brackets),
            ("[::1:7", Brackets),
            ("[::1]7", Brackets),
            ("[a]:7", Brackets),
            ("a:", InvalidPort),
            ("a:x", InvalidPort),
            ("a:+7", InvalidPort),
            ("a:0", InvalidPort),
            ("a:65536", InvalidPort),
            ("redis://a", InvalidPort),
        ] {
            assert_eq!(Endpoint::parse(text, Some(1)), Err(defect), "{text:?}");
        }
        assert_eq!(Endpoint::parse("a", None), Err(AddressError::NoPort));
    }

    #[test]
    fn a_map_translates_what_a_server_announces() {
        let map: AddressMap = Arc::new(|announced| match announced {
            "a:1" => Some("[::1]:2".into()),
            "b:1" => Some("no\nport".into()),
            "d:1" => panic!("no translation"),
            _ => None,
        });
        let shown = |announced| {
            let endpoint = Endpoint::announced(announced, Some(&map));
            endpoint.map_or_else(|error| error.to_string(), |endpoint| endpoint.to_string())
        };
        assert_eq!(shown("a:1"), "[::1]:2");
        assert_eq!(shown("c:1"), "c:1");
        let refused = shown("b:1");
        assert!(refused.contains("`no port`"), "{refused}");
        assert!(refused.contains("the port is missing"), "{refused}");
        assert!(shown("d:1").contains("panicked at `d:1`"));
    }
}
