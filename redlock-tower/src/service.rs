use std::task::{Context, Poll};

use futures::{FutureExt, future::BoxFuture};
use tower::ServiceExt;
use tower_service::Service;

use crate::{CallError, ExtractKey, LockLayer, Locked, ShareHold};

/// A service that holds a lock while its inner service handles a call. Made by [`LockLayer`].
///
/// For each call the service extracts the key, waits for the lock, calls a clone of the inner service, and
/// releases the lock once the inner service has responded. A call without a key passes through without a lock.
///
/// The service is always ready. The key is only known once the call is there, and a service that waited for a lock
/// in `poll_ready` would also delay calls with other keys. The inner service is made ready after the lock is held.
/// So a call that waits takes no capacity from the inner service, such as a concurrency permit.
///
/// The inner service must be `Clone`, as those of axum and tonic are. Put a
/// [`Buffer`](https://docs.rs/tower/latest/tower/buffer/struct.Buffer.html) around a service that is not.
///
/// Dropping the response future while it waits gives up the wait. Dropping it later drops the inner call and releases
/// the lock, unless the layer is [detached](LockLayer::detached): then the inner call runs to its end.
///
/// The future is boxed, which costs an allocation.
#[derive(Clone, Debug)]
pub struct LockService<S, K, H = ()> {
    inner: S,
    layer: LockLayer<K, H>,
}

impl<S, K, H> LockService<S, K, H> {
    pub(crate) fn new(inner: S, layer: LockLayer<K, H>) -> Self {
        Self { inner, layer }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the inner service out.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, H, Request> Service<Request> for LockService<S, K, H>
where
    S: Service<Request, Response: Send, Error: Send, Future: Send> + Clone + Send + 'static,
    Request: Send + 'static,
    K: ExtractKey<Request> + Clone + Send + Sync + 'static,
    H: ShareHold<Request> + Clone + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = BoxFuture<'static, Result<S::Response, CallError<S::Error>>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Self { inner, layer } = self.clone();
        let call = async move {
            let work = |mut request, lock: Option<Locked>| {
                if let Some(lock) = lock {
                    layer.share.share(&mut request, lock);
                }
                inner.oneshot(request)
            };
            layer.run(request, work).await
        };
        call.boxed()
    }
}
