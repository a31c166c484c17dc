//! Reading a node's URL.

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
    "{0}; expected redis://[user:password@]host[:port][/database], rediss://.., unix:///path or \
     redis+sentinel://host,host/group"
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

/// A node's URL in parts.
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
        // The parser drops the text after a `#`, for instance a part of a password.
        if url.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
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

/// Repeats the text only if it is an address and nothing else.
fn lacks_scheme(text: &str) -> UrlError {
    match Endpoint::parse(text, None) {
        Ok(endpoint) => UrlError::new(format!("the scheme is missing: write redis://{endpoint}")),
        Err(_) => UrlError::new("the scheme is missing: write redis:// in front of the address"),
    }
}
