use std::task::{Context, Poll};

use redlock_tokio::{LockOptions, Redlock};
use tower_service::Service;

use crate::{ExtractKey, LockError, ResponseFuture, ShareHold};

/// A service that holds a lock while its inner service works. Made by
/// [`LockLayer`](crate::LockLayer).
///
/// For each call it extracts the key, waits for the lock, calls a clone of the inner service, and
/// releases the lock when that has answered. A call without a key passes through.
///
/// It is always ready. Which lock a call needs is not known before the call, and a service that
/// waited for it in `poll_ready` would keep calls with other keys waiting too. For the same reason
/// the inner service is made ready only once the lock is held: nothing of it (a concurrency
/// permit, say) is reserved while a call waits.
///
/// The inner service must be `Clone`, as Axum's and Tonic's are; put a
/// [`Buffer`](https://docs.rs/tower/latest/tower/buffer/struct.Buffer.html) around one that is not.
///
/// Dropping the response future drops the inner call where it stands and releases the lock.
#[derive(Clone, Debug)]
pub struct LockService<S, K, H = ()> {
    inner: S,
    redlock: Redlock,
    key: K,
    share: H,
    options: LockOptions,
}

impl<S, K, H> LockService<S, K, H> {
    pub(crate) fn new(inner: S, redlock: Redlock, key: K, share: H, options: LockOptions) -> Self {
        Self {
            inner,
            redlock,
            key,
            share,
            options,
        }
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
    S: Service<Request> + Clone,
    K: ExtractKey<Request>,
    H: ShareHold<Request> + Clone,
{
    type Response = S::Response;
    type Error = LockError<S::Error>;
    type Future = ResponseFuture<S, Request, H>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let inner = self.inner.clone();
        match self.key.extract(&mut request) {
            Ok(Some(key)) => {
                let lock = self.redlock.lock(key).options(self.options).into_future();
                ResponseFuture::locking(lock, inner, request, self.share.clone())
            }
            Ok(None) => ResponseFuture::calling(inner, request),
            Err(rejection) => ResponseFuture::rejected(rejection),
        }
    }
}
