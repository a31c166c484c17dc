//! What foreign clients do with our keys.

use std::sync::Arc;

use redlock_core::Ttl;
use redlock_tokio::{Key, Token};

use crate::requests::OpenRequest;

/// What a foreign client does on a server.
pub(crate) enum Step {
    Set {
        server: usize,
        value: Arc<Value>,
    },
    Delete {
        server: usize,
        value: Arc<Value>,
    },
    /// The key has expired everywhere.
    Over(#[allow(dead_code, reason = "kept until then")] Arc<Value>),
}

/// What a foreign client writes to a key, on one server or on several.
pub(crate) struct Value {
    pub(crate) key: Key,
    pub(crate) token: Token,
    pub(crate) ttl: Ttl,
    /// To our clients it is a rival, until this is dropped.
    #[allow(dead_code, reason = "dropped with the value")]
    pub(crate) open: OpenRequest,
}
