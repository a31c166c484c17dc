use std::sync::{Arc, OnceLock};

use axum::http::Method;
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_tokio::{Hold, Redlock};
use redlock_tower::{CallerDeadline, ExtractKey, Extracted, KeyRejection};

use super::RequestKey;
use crate::Request;

/// What the layers around a request hold for it: whoever asks for it again would wait for himself.
#[derive(Clone, Default)]
pub(crate) struct HeldKeys(Vec<Held>);

#[derive(Clone)]
struct Held {
    redlock: Redlock,
    keys: WantedKeys,
    hold: Hold,
}

/// The keys that one request wants, once that is known.
pub(crate) type WantedKeys = Arc<OnceLock<Vec<Vec<u8>>>>;

impl HeldKeys {
    pub(crate) fn add(&mut self, redlock: Redlock, keys: WantedKeys, hold: Hold) {
        self.0.push(Held {
            redlock,
            keys,
            hold,
        });
    }

    /// Returns whether one of these keys is held, and not released or lost by now.
    fn contain(&self, redlock: &Redlock, keys: &[Vec<u8>]) -> bool {
        self.0.iter().any(|held| {
            let mut held_keys = held.keys.get().into_iter().flatten();
            held.redlock.is_same(redlock)
                && held_keys.any(|key| keys.contains(key))
                && held.hold.is_valid()
        })
    }
}

/// The key that one request wants, by the rules of its layer.
pub(crate) struct Wanted<K> {
    pub(crate) key: Arc<K>,
    pub(crate) methods: Methods,
    pub(crate) redlock: Redlock,
    pub(crate) prefix: Arc<[u8]>,
    /// What it turned out to be.
    pub(crate) keys: WantedKeys,
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
        let deadline = CallerDeadline::of(&request);
        let extracting = self.key.extract(request);
        async move {
            let (request, wanted) = extracting.await;
            let Ok(Some(wanted)) = wanted else {
                return (request, wanted);
            };
            let wanted = wanted.prefixed(&prefix);
            let held = request.extensions().get::<HeldKeys>();
            if held.is_some_and(|held| held.contain(&redlock, wanted.keys())) {
                let error = "two lock layers around one handler want the same key: the inner one \
                             would wait for the outer one";
                return (request, Err(KeyRejection::layer(error)));
            }
            // It is asked once.
            let _ = keys.set(wanted.keys().to_vec());
            let wanted = match deadline {
                Some(deadline) => wanted.wait_at_most(deadline.remaining()),
                None => wanted,
            };
            (request, Ok(Some(wanted)))
        }
        .boxed()
    }

    fn makes_several(&self) -> bool {
        self.key.makes_several()
    }
}
