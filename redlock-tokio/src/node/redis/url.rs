//! Reading a node's URL.

use std::sync::Arc;
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
use std::time::Duration;

use deadpool_redis::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, io::tcp::TcpSettings,
};

/// Why a text is not a node's URL. Does not repeat the text, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; expected redis://[user:password@]host[:port][/database], rediss://.. or unix:///path"
)]
pub struct UrlError(Arc<str>);

impl UrlError {
    pub(super) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    fn tls_is_off() -> Self {
        Self::new("TLS needs the feature `tls-rustls` of redlock-tokio")
    }
}

/// A node's URL in parts.
pub(super) struct NodeUrl {
    /// The address as errors and logs show it, without user, password and database.
    pub(super) address: Box<str>,
    pub(super) info: ConnectionInfo,
    /// The URL says `protocol=resp2`.
    pub(super) excludes_resp3: bool,
}

impl NodeUrl {
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        // The parser drops the text after a `#`, for instance a part of a password.
        if url.contains('#') {
            return Err(UrlError::new("a `#` must be written as %23"));
        }
        let info = url.trim().into_connection_info().map_err(|error| {
            let text = error.to_string();
            if text.contains("with TLS, the feature is not enabled") {
                return UrlError::tls_is_off();
            }
            UrlError::new(text)
        })?;
        // Another crate may have turned on TLS in the redis crate without a choice of cryptography.
        if !cfg!(feature = "tls-rustls") && matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(UrlError::tls_is_off());
        }
        install_crypto_provider(info.addr());
        let protocol = info.redis_settings().protocol();
        Ok(Self {
            address: address_of(info.addr()),
            excludes_resp3: url.contains("protocol=") && protocol == ProtocolVersion::RESP2,
            info: info.set_tcp_settings(tcp_settings()),
        })
    }
}

/// Returns the address as people write it, in lower case since host names do not distinguish it.
fn address_of(addr: &ConnectionAddr) -> Box<str> {
    match addr {
        ConnectionAddr::Unix(path) => path.display().to_string().into(),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.contains(':') =>
        {
            format!("[{host}]:{port}").to_lowercase().into()
        }
        other => other.to_string().to_lowercase().into(),
    }
}

fn tcp_settings() -> TcpSettings {
    // Nagle's algorithm would hold back a lock's small requests until the previous answer has come.
    let settings = TcpSettings::default().set_nodelay(true);
    // Unacknowledged data on a dead path breaks the connection after this time, not after a quarter
    // of an hour.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

/// Chooses the cryptography of rustls for the process, if the application has chosen none. Rustls would
/// panic at the first connection without a choice, or if features of several crates disagree.
fn install_crypto_provider(addr: &ConnectionAddr) {
    #[cfg(feature = "tls-rustls")]
    if matches!(addr, ConnectionAddr::TcpTls { .. })
        && rustls::crypto::CryptoProvider::get_default().is_none()
    {
        // An error means that another thread has chosen meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    #[cfg(not(feature = "tls-rustls"))]
    let _ = addr;
}
