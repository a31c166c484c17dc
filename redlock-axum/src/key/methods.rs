use std::sync::Arc;

use axum::http::Method;

/// Which requests need a lock.
#[derive(Clone, Debug)]
pub(crate) enum Methods {
    /// Requests with any method that is not safe.
    Unsafe,
    All,
    These(Arc<[Method]>),
}

impl Methods {
    pub(super) fn need_lock(&self, method: &Method) -> bool {
        match self {
            Self::Unsafe => !method.is_safe(),
            Self::All => true,
            Self::These(methods) => methods.contains(method),
        }
    }
}
