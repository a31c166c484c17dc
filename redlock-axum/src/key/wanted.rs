use std::sync::{Arc, OnceLock};

use axum::http::Method;
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_tokio::Redlock;
use redlock_tower::{ExtractKey, Extracted, KeyRejection};

use super::RequestKey;
use crate::Request;

/// What the layers around a request hold for it: whoever asks for it again would wait for himself.
#[derive(Clone)]
pub(crate) struct HeldKeys(pub(crate) Vec<(Redlock, Vec<u8>)>);

/// The key that one request wants, by the rules of its layer.
pub(crate) struct Wanted<K> {
    pub(crate) key: Arc<K>,
    pub(crate) methods: Methods,
    pub(crate) redlock: Redlock,
    pub(crate) prefix: Arc<[u8]>,
    /// What it turned out to be.
    pub(crate) keys: Arc<OnceLock<Vec<Vec<u8>>>>,
}

impl<K> Clone for Wanted<K> {
    fn clone(&self) -> Self {
        Self {
            key: Arc::clone(&self.key),
            methods: self.methods.clone(),
            redlock: self.redlock.clone(),
            prefix: Arc::clone(&self.prefix),
            keys: Arc::clone(&self.keys),
        }
    }
}

/// Which requests need a lock.
#[derive(Clone, Debug)]
pub(crate) enum Methods {
    /// All but those with safe methods.
    Unsafe,
    All,
    These(Arc<[Method]>),
}

impl Methods {
    fn need_lock(&self, method: &Method) -> bool {
        match self {
            Self::Unsafe => !method.is_safe(),
            Self::All => true,
            Self::These(methods) => methods.contains(method),
        }
    }
}

impl<K: RequestKey> ExtractKey<Request> for Wanted<K> {
    type Future = BoxFuture<'static, (Request, Extracted)>;

    fn extract(&self, request: Request) -> Self::Future {
        if !self.methods.need_lock(request.method()) {
            return ready((request, Ok(None))).boxed();
        }
        let (redlock, prefix) = (self.redlock.clone(), Arc::clone(&self.prefix));
        let keys = Arc::clone(&self.keys);
        let extracting = self.key.extract(request);
        async move {
            let (request, wanted) = extracting.await;
            let Ok(Some(wanted)) = wanted else {
                return (request, wanted);
            };
            let full = |key: &Vec<u8>| [&prefix, &**key].concat();
            let wanted_keys: Vec<_> = wanted.keys().iter().map(full).collect();
            let is_held = request.extensions().get().is_some_and(|held: &HeldKeys| {
                held.0
                    .iter()
                    .any(|(by, key)| by.is_same(&redlock) && wanted_keys.contains(key))
            });
            if is_held {
                let error = "two lock layers around one handler want the same key: the inner one \
                             would wait for the outer one";
                return (request, Err(KeyRejection::layer(error)));
            }
            // It is asked once.
            let _ = keys.set(wanted_keys);
            (request, Ok(Some(wanted)))
        }
        .boxed()
    }
}
