use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use futures::future::{Either, MapOk};
use pin_project::pin_project;
use redlock_tower::{AtBodyEnd, Detached, HoldBody};
use tower_service::Service;

use crate::{
    Request, key::LayerKey, key::RequestKey, locked::InsertLocked, rejection::RejectionPolicy,
    service::Responding,
};

/// The future of a request behind a [`LockService`](crate::LockService).
///
/// # Cancel safety
///
/// Dropping the future while it waits for the lock gives up the wait, and the handler does not run. Dropping it later
/// does not stop the handler, except with [`cancel_on_disconnect`](crate::LockLayer::cancel_on_disconnect).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S, K>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
    K: RequestKey,
{
    #[pin]
    call: Call<S, K>,
    policy: Arc<RejectionPolicy>,
}

/// The future of `redlock-tower`, which holds the lock until the response or until the end of its body.
pub(crate) type Call<S, K> = Either<
    LockFuture<S, K, Detached>,
    MapOk<LockFuture<S, K, Detached<AtBodyEnd>>, fn(Response<HoldBody<Body>>) -> Response>,
>;

type LockFuture<S, K, M> =
    redlock_tower::ResponseFuture<Responding<S>, Request, LayerKey<K>, InsertLocked, M>;

impl<S, K> ResponseFuture<S, K>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
    K: RequestKey,
{
    pub(crate) fn new(call: Call<S, K>, policy: Arc<RejectionPolicy>) -> Self {
        Self { call, policy }
    }
}

impl<S, K> Future for ResponseFuture<S, K>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
    K: RequestKey,
{
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = ready!(this.call.poll(cx));
        Poll::Ready(Ok(
            outcome.unwrap_or_else(|error| this.policy.respond(error))
        ))
    }
}

impl<S, K> fmt::Debug for ResponseFuture<S, K>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
    K: RequestKey,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
