use thiserror::Error;

use super::{tls::TlsError, url::UrlError};

/// Why a [`RedisNode`](crate::RedisNode) could not be built. Never repeats a password or a private key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedisNodeError {
    /// The URL, or an address, cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The TLS options cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There are a user or a password, and a function that returns both.
    #[error("there are credentials, and a function that returns them: leave one of them out")]
    TwoCredentials,
    /// There is a function that opens streams, and the URL asks for TLS.
    #[error("a stream of your own brings its own TLS: write redis:// instead of rediss://")]
    TlsOverStream,
}

impl RedisNodeError {
    /// Returns the error of a node that has nothing but a URL.
    pub(crate) fn into_url_error(self) -> UrlError {
        match self {
            Self::Url(error) => error,
            other => UrlError::new(other.to_string()),
        }
    }
}
