use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use futures::{FutureExt, TryFutureExt, future::BoxFuture};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    LockLayer, Request,
    key::{RequestKey, WantedKeys},
    locked::InsertLock,
    response_service::Responding,
};

/// A service that holds a lock while its inner service handles a request. Made by
/// [`LockLayer`](crate::LockLayer).
pub struct LockService<S, K> {
    inner: S,
    layer: LockLayer<K>,
}

impl<S, K> LockService<S, K> {
    pub(crate) fn new(inner: S, layer: LockLayer<K>) -> Self {
        Self { inner, layer }
    }
}

impl<S, K> Service<Request> for LockService<S, K>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
    K: RequestKey,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The lock is waited for in the response future, and so is the inner service.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let it = &self.layer;
        let keys = WantedKeys::default();
        let wanted = it.wanted(Arc::clone(&keys));
        let share = InsertLock {
            redlock: it.redlock.clone(),
            keys: Arc::clone(&keys),
        };
        let layer = it.inner.clone().with_key(wanted).share_hold(share);
        let inner = Responding(self.inner.clone());
        let (policy, redlock) = (it.policy.clone(), it.redlock.clone());
        let respond = move |outcome: Result<Response, _>| {
            Ok(outcome.unwrap_or_else(|error| {
                let keys = keys.get().into_iter().flatten();
                let expected = keys.filter_map(|key| redlock.expected_wait(key)).max();
                policy.respond(error, expected)
            }))
        };
        match (it.cancels, it.body_end) {
            (true, None) => layer.layer(inner).call(request).map(respond).boxed(),
            (false, None) => {
                let layer = layer.detached_in(it.tasks.clone());
                layer.layer(inner).call(request).map(respond).boxed()
            }
            (true, Some(max)) => {
                let layer = layer.hold_until_body_end(max);
                let response = layer.layer(inner).call(request);
                let response = response.map_ok(|it| it.map(Body::new));
                response.map(respond).boxed()
            }
            (false, Some(max)) => {
                let layer = layer.detached_in(it.tasks.clone()).hold_until_body_end(max);
                let response = layer.layer(inner).call(request);
                let response = response.map_ok(|it| it.map(Body::new));
                response.map(respond).boxed()
            }
        }
    }
}

impl<S: Clone, K> Clone for LockService<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S, K> fmt::Debug for LockService<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}
