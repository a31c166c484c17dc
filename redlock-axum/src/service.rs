use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use futures::{FutureExt, future::BoxFuture};
use redlock_tower::HoldBody;
use tower::ServiceExt;
use tower_service::Service;

use crate::{LockLayer, Locked, Request, RequestKey};

/// A service that holds a lock while its inner service handles a request. Made by [`LockLayer`].
///
/// Dropping the response future while it waits for the lock gives up the wait, and the handler does not run. Dropping
/// it later does not stop the handler, except with [`cancel_on_disconnect`](LockLayer::cancel_on_disconnect).
#[derive(Clone, Debug)]
pub struct LockService<S, K> {
    pub(crate) inner: S,
    pub(crate) layer: LockLayer<K>,
}

impl<S, K> Service<Request> for LockService<S, K>
where
    S: Service<Request, Response: IntoResponse, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    K: RequestKey,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The response future waits for the lock, and then for the inner service.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Self { inner, layer } = self.clone();
        // In a task of its own, a call would run on if a layer further out dropped it and released its lock.
        let is_nested = request.extensions().get::<Locked>().is_some();
        let call = async move {
            let redlock = layer.key.rules().redlock.clone();
            let lock = layer.lock.with_key(layer.key);
            let lock = match layer.cancels || is_nested {
                true => lock,
                false => lock.detached(),
            };
            let work = |mut request: Request, held: Option<redlock_tower::Locked>| {
                if let Some(held) = held.clone() {
                    Locked::insert(&mut request, held, redlock);
                }
                // The body of the response takes the lock on, if bodies do.
                let of_body = held.zip(layer.body_end);
                async move {
                    let response = inner.oneshot(request).await?.into_response();
                    Ok(match of_body {
                        Some((lock, max)) => {
                            HoldBody::new(response, Some(lock), max).map(Body::new)
                        }
                        None => response,
                    })
                }
            };
            let outcome = lock.run(request, work).await;
            Ok(outcome.unwrap_or_else(|error| layer.policy.respond(error)))
        };
        call.boxed()
    }
}
