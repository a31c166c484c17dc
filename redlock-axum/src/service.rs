use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::{IntoResponse, Response};
use redlock_tower::{AtBodyEnd, Detached, Inline};
use tower_service::Service;

use crate::{
    Locked, Request, ResponseFuture,
    future::Call,
    key::{LayerKey, RequestKey},
    locked::InsertLocked,
    rejection::RejectionPolicy,
    response_service::Responding,
};

/// A service that holds a lock while its inner service handles a request. Made by
/// [`LockLayer`](crate::LockLayer).
pub struct LockService<S, K> {
    locking: Locking<S, K>,
    policy: Arc<RejectionPolicy>,
}

/// The service of `redlock-tower`, in the mode that the layer's options ask for.
pub(crate) enum Locking<S, K> {
    Detached(Tower<S, K, Detached>),
    Inline(Tower<S, K, Inline>),
    DetachedToBodyEnd(Tower<S, K, Detached<AtBodyEnd>>),
    InlineToBodyEnd(Tower<S, K, Inline<AtBodyEnd>>),
}

type Tower<S, K, M> = redlock_tower::LockService<Responding<S>, LayerKey<K>, InsertLocked, M>;

impl<S, K> LockService<S, K> {
    pub(crate) fn new(locking: Locking<S, K>, policy: Arc<RejectionPolicy>) -> Self {
        Self { locking, policy }
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
    type Future = ResponseFuture<S, K>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The response future waits for the lock, and then for the inner service.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let is_nested = request.extensions().get::<Locked>().is_some();
        let call = match &mut self.locking {
            Locking::Detached(it) if is_nested => Call::Detached(it.nested().call(request)),
            Locking::DetachedToBodyEnd(it) if is_nested => {
                Call::DetachedToBodyEnd(it.nested().call(request))
            }
            Locking::Detached(it) => Call::Detached(it.call(request)),
            Locking::Inline(it) => Call::Inline(it.call(request)),
            Locking::DetachedToBodyEnd(it) => Call::DetachedToBodyEnd(it.call(request)),
            Locking::InlineToBodyEnd(it) => Call::InlineToBodyEnd(it.call(request)),
        };
        ResponseFuture::new(call, Arc::clone(&self.policy))
    }
}

impl<S: Clone, K> Clone for LockService<S, K> {
    fn clone(&self) -> Self {
        Self {
            locking: self.locking.clone(),
            policy: Arc::clone(&self.policy),
        }
    }
}

impl<S: Clone, K> Clone for Locking<S, K> {
    fn clone(&self) -> Self {
        match self {
            Self::Detached(it) => Self::Detached(it.clone()),
            Self::Inline(it) => Self::Inline(it.clone()),
            Self::DetachedToBodyEnd(it) => Self::DetachedToBodyEnd(it.clone()),
            Self::InlineToBodyEnd(it) => Self::InlineToBodyEnd(it.clone()),
        }
    }
}

impl<S, K> fmt::Debug for LockService<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService").finish_non_exhaustive()
    }
}
