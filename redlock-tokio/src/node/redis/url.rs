//! Reading the URLs of nodes.

use std::sync::Arc;

use deadpool_redis::redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use super::{
    address::Endpoint,
    connect::{ConnectionSettings, Transport},
    tls::{Tls, TlsError, TlsOptions},
};

/// Why a text is not a node's URL. Does not repeat the text, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; expected redis://[user:password@]host[:port][/database], rediss://.., unix:///path, \
     redis+sentinel://host,host/group or redis+cluster://host,host"
)]
pub struct UrlError(Arc<str>);

impl UrlError {
    pub(super) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    fn of_tls(error: &TlsError) -> Self {
        Self::new(error.to_string())
    }
}

pub(super) struct NodeUrl {
    pub(super) endpoint: Endpoint,
    pub(super) settings: ConnectionSettings,
}

impl NodeUrl {
    /// Returns the node's name in errors and logs: the server, and the database, unless that is the first one. Locks in
    /// different databases of a server are different locks.
    pub(super) fn name(&self) -> String {
        match (&self.endpoint, self.settings.redis().db()) {
            (endpoint, 0) => endpoint.to_string(),
            (Endpoint::Tcp { .. }, database) => format!("{}/{database}", self.endpoint),
            (Endpoint::Unix(_), database) => format!("{}?db={database}", self.endpoint),
        }
    }

    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        if url.contains("+sentinel://") {
            let text = "a sentinel group has options of its own: use RedisNode::sentinel";
            return Err(UrlError::new(text));
        }
        if url.contains("+cluster://") {
            let text = "a cluster is several nodes: give its URL to RedlockBuilder::nodes";
            return Err(UrlError::new(text));
        }
        // The parser drops the text after a `#`, for instance a part of a password.
        if url.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
        }
        // Otherwise a part of a password would be taken for a path.
        let after_host = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once(['/', '?']));
        if after_host.is_some_and(|(host, rest)| !host.is_empty() && rest.contains('@')) {
            return Err(unescaped());
        }
        let info = url.trim().into_connection_info().map_err(|error| {
            let text = error.to_string();
            if text.contains("with TLS, the feature is not enabled") {
                return UrlError::of_tls(&TlsError::FeatureIsOff);
            }
            if url.contains("://") {
                UrlError::new(text)
            } else {
                lacks_scheme(url.trim())
            }
        })?;
        let transport = match info.addr() {
            // Another crate may have turned on TLS in the redis crate without a choice of cryptography.
            ConnectionAddr::TcpTls { .. } => Transport::Tls(
                Tls::new(&TlsOptions::new()).map_err(|error| UrlError::of_tls(&error))?,
            ),
            _ => Transport::Plain,
        };
        let endpoint = Endpoint::of(info.addr())
            .ok_or_else(|| UrlError::new("the address is of an unknown kind"))?;
        let redis = info.redis_settings().clone();
        let excludes_resp3 =
            url.contains("protocol=") && redis.protocol() == ProtocolVersion::RESP2;
        Ok(Self {
            endpoint,
            settings: ConnectionSettings::new(redis, transport, excludes_resp3),
        })
    }
}

/// The part of a URL after the scheme, if it names several servers:
/// `[user[:password]@]host[:port],host[:port][/path][?name=value&..]`.
pub(super) struct ServersUrl<'a> {
    pub(super) credentials: &'a str,
    pub(super) servers: &'a str,
    /// `None` without a slash.
    pub(super) path: Option<&'a str>,
    query: &'a str,
}

impl<'a> ServersUrl<'a> {
    pub(super) fn parse(rest: &'a str) -> Result<Self, UrlError> {
        if rest.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        if path.is_some_and(|path| path.contains('@')) {
            return Err(unescaped());
        }
        let (credentials, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
        Ok(Self {
            credentials,
            servers,
            path,
            query,
        })
    }

    /// Returns the names and the values behind the `?`, percent-encoded.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let parts = self.query.split('&').filter(|part| !part.is_empty());
        parts.map(|part| part.split_once('=').unwrap_or((part, "")))
    }
}

/// Otherwise a part of a password could be taken for a name or a host, which logs show.
fn unescaped() -> UrlError {
    UrlError::new(
        "in a user or a password, a `/` must be written as %2F and a `?` as %3F; in a path or a parameter, an `@` as %40",
    )
}

/// Replaces `%40` and the like.
pub(super) fn decoded(text: &str) -> Result<String, UrlError> {
    let error =
        || UrlError::new("a `%` must be followed by two hexadecimal digits of a UTF-8 text");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(error)?;
        // A sign would be accepted otherwise.
        let byte = u8::from_str_radix(digits, 16).ok();
        let byte = byte.filter(|_| !digits.starts_with('+'));
        bytes.push(byte.ok_or_else(error)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| error())
}

/// Repeats the text only if it is an address and nothing else.
fn lacks_scheme(text: &str) -> UrlError {
    match Endpoint::parse(text, None) {
        Ok(endpoint) => UrlError::new(format!("the scheme is missing: write redis://{endpoint}")),
        Err(_) => UrlError::new("the scheme is missing: write redis:// in front of the address"),
    }
}
