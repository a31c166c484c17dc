use std::{error::Error, sync::Arc, time::Duration};

use redlock_tokio::errors::KeyError;
use thiserror::Error;

/// Any error that can be passed between tasks.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a request that needs a lock cannot ask for it.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum KeyRejection {
    /// The request is at fault: a part of the key is missing or malformed.
    #[error("the request has no usable key: {0}")]
    Request(Arc<dyn Error + Send + Sync>),
    /// The request wants more keys than [`max_keys`](crate::LockLayer::max_keys).
    #[error("the request wants locks for more than {limit} resources")]
    TooManyKeys {
        /// How many keys a request may want.
        limit: usize,
    },
    /// The body has more bytes than the layer reads before it takes a lock.
    #[error("the request body has over {limit} bytes")]
    TooLarge {
        /// How many bytes the layer reads.
        limit: usize,
    },
    /// The body that the layer reads before it takes a lock did not arrive in time.
    #[error("the request body did not arrive within {limit:?}")]
    TooSlow {
        /// How long the layer waited for it.
        limit: Duration,
    },
    /// The layer is at fault: it expects something that no request has at this place.
    #[error("the lock layer is misconfigured: {0}")]
    Layer(Arc<dyn Error + Send + Sync>),
}

impl KeyRejection {
    /// Blames the request.
    pub fn request(error: impl Into<BoxError>) -> Self {
        Self::Request(error.into().into())
    }

    /// Blames the layer, or the service that configures it.
    pub fn layer(error: impl Into<BoxError>) -> Self {
        Self::Layer(error.into().into())
    }
}

/// Blames the request, because its parts make no valid key.
impl From<KeyError> for KeyRejection {
    fn from(error: KeyError) -> Self {
        Self::request(error.to_string())
    }
}

macro_rules! errors_blame_the_request {
    ($($error:ty)*) => {$(
        impl From<$error> for KeyRejection {
            fn from(error: $error) -> Self {
                Self::request(error)
            }
        }
    )*};
}

errors_blame_the_request!(BoxError String &str);
