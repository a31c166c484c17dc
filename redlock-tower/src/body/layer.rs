use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::Response;
use http_body::Body;
use tower::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

use crate::{CallError, ExtractKey, HoldBody, LockLayer, Locked, ShareHold};

/// A [`LockLayer`] that holds the lock until the response's body has ended. Made by
/// [`LockLayer::hold_until_body_end`].
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct HoldBodyLayer<K, H = ()> {
    layer: LockLayer<K, H>,
    max: Duration,
}

impl<K, H> HoldBodyLayer<K, H> {
    pub(crate) fn new(layer: LockLayer<K, H>, max: Duration) -> Self {
        Self { layer, max }
    }
}

impl<S, K: Clone, H: Clone> Layer<S> for HoldBodyLayer<K, H> {
    type Service = HoldBodyService<S, K, H>;

    fn layer(&self, inner: S) -> Self::Service {
        HoldBodyService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A [`LockService`](crate::LockService) that holds the lock until the response's body has ended. Made by
/// [`HoldBodyLayer`].
#[derive(Clone, Debug)]
pub struct HoldBodyService<S, K, H = ()> {
    inner: S,
    layer: HoldBodyLayer<K, H>,
}

impl<S, K, H, Request, B> Service<Request> for HoldBodyService<S, K, H>
where
    S: Service<Request, Response = Response<B>, Error: Send, Future: Send> + Clone + Send + 'static,
    B: Body + Send + 'static,
    Request: Send + 'static,
    K: ExtractKey<Request> + Clone + Send + Sync + 'static,
    H: ShareHold<Request> + Clone + Send + Sync + 'static,
{
    type Response = Response<HoldBody<B>>;
    type Error = CallError<S::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Self { inner, layer } = self.clone();
        let call = async move {
            let HoldBodyLayer { layer, max } = layer;
            let work = |mut request, lock: Option<Locked>| {
                if let Some(lock) = lock.clone() {
                    layer.share.share(&mut request, lock);
                }
                async move { Ok(HoldBody::new(inner.oneshot(request).await?, lock, max)) }
            };
            layer.run(request, work).await
        };
        call.boxed()
    }
}
