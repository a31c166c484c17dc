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
use futures::{
    TryFutureExt,
    future::{Either, MapOk},
};
use redlock_tower::{AtBodyEnd, Detached, HoldBody};
use tower_service::Service;

use crate::{
    Locked, Request, ResponseFuture,
    key::{LayerKey, RequestKey},
    locked::InsertLocked,
    rejection::RejectionPolicy,
};

/// A service that holds a lock while its inner service handles a request. Made by
/// [`LockLayer`](crate::LockLayer).
pub struct LockService<S, K> {
    locking: Locking<S, K>,
    policy: Arc<RejectionPolicy>,
}

/// The service of `redlock-tower`, which holds the lock until the response or until the end of its body.
pub(crate) enum Locking<S, K> {
    ToHead(Tower<S, K, Detached>),
    ToBodyEnd(Tower<S, K, Detached<AtBodyEnd>>),
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
        let mut nested = is_nested.then(|| self.locking.clone().in_place());
        let boxed: fn(Response<HoldBody<Body>>) -> Response = |response| response.map(Body::new);
        let call = match nested.as_mut().unwrap_or(&mut self.locking) {
            Locking::ToHead(it) => Either::Left(it.call(request)),
            Locking::ToBodyEnd(it) => Either::Right(it.call(request).map_ok(boxed)),
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

impl<S, K> Locking<S, K> {
    pub(crate) fn in_place(self) -> Self {
        match self {
            Self::ToHead(it) => Self::ToHead(it.in_place()),
            Self::ToBodyEnd(it) => Self::ToBodyEnd(it.in_place()),
        }
    }
}

impl<S: Clone, K> Clone for Locking<S, K> {
    fn clone(&self) -> Self {
        match self {
            Self::ToHead(it) => Self::ToHead(it.clone()),
            Self::ToBodyEnd(it) => Self::ToBodyEnd(it.clone()),
        }
    }
}

impl<S, K> fmt::Debug for LockService<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService").finish_non_exhaustive()
    }
}

/// The service behind the layer. It turns answers into responses in the task where the handler ran.
#[derive(Clone, Debug)]
pub(crate) struct Responding<S>(pub(crate) S);

impl<S> Service<Request> for Responding<S>
where
    S: Service<Request, Error = Infallible>,
    S::Response: IntoResponse,
{
    type Response = Response;
    type Error = Infallible;
    type Future = MapOk<S::Future, fn(S::Response) -> Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.0.call(request).map_ok(IntoResponse::into_response)
    }
}
