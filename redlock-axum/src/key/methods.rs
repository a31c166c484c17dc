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
    pub(crate) fn these(methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = methods.into_iter();
        Self::These(methods.map(|method| canonical(&method).clone()).collect())
    }

    /// Returns whether requests with this method read: those with the safe methods of RFC 9110, section 9.2.1.
    pub(super) fn reads(method: &Method) -> bool {
        canonical(method).is_safe()
    }

    pub(super) fn need_lock(&self, method: &Method) -> bool {
        let method = canonical(method);
        match self {
            Self::Unsafe => !method.is_safe(),
            Self::All => true,
            Self::These(methods) => methods.contains(method),
        }
    }
}

/// The handshake of a WebSocket is a GET over HTTP/1 and a CONNECT over HTTP/2. A HEAD runs the handler of the GET. So
/// they are one method to a layer: otherwise a client could choose whether there is a lock.
fn canonical(method: &Method) -> &Method {
    if [Method::CONNECT, Method::HEAD].contains(method) {
        &Method::GET
    } else {
        method
    }
}
