use std::task::{Context, Poll};

use tower_service::Service;

use crate::{CallError, Detached, ExtractKey, Inline, LockLayer, Mode, ResponseFuture, ShareHold};

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
/// Dropping the response future while it waits gives up the wait. Dropping it later does what the mode of the
/// layer says: [`Inline`], the default, drops the inner call and releases the lock. [`Detached`](crate::Detached)
/// runs the inner call to its end.
#[derive(Clone, Debug)]
pub struct LockService<S, K, H = (), M = Inline> {
    inner: S,
    layer: LockLayer<K, H, M>,
}

impl<S, K, H, M> LockService<S, K, H, M> {
    pub(crate) fn new(inner: S, layer: LockLayer<K, H, M>) -> Self {
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

impl<S, K, H, R> LockService<S, K, H, Detached<R>> {
    /// Runs calls as part of the response future, like [`Inline`] calls: for calls inside a call that has another layer's
    /// lock. In a task of its own, such a call would run on if the outer call was dropped, and with it the outer lock.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.layer.mode.in_place = true;
        self
    }
}

impl<S, K, H, M, Request> Service<Request> for LockService<S, K, H, M>
where
    S: Service<Request> + Clone,
    K: ExtractKey<Request>,
    H: ShareHold<Request> + Clone,
    M: Mode<S, Request> + Clone,
{
    type Response = M::Response;
    type Error = CallError<S::Error>;
    type Future = ResponseFuture<S, Request, K, H, M>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture::new(&self.layer, self.inner.clone(), request)
    }
}
