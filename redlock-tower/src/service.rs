use std::task::{Context, Poll};

use tower_service::Service;

use crate::{ExtractKey, Inline, LockError, Mode, ResponseFuture, ShareHold, rules::Rules};

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
/// Dropping the response future while it waits gives up. Dropped later, it is as the layer's mode says:
/// [`Inline`], by default, drops the inner call where it stands and releases the lock;
/// [`Detached`](crate::Detached) lets it run to its end.
#[derive(Clone, Debug)]
pub struct LockService<S, K, H = (), M = Inline> {
    inner: S,
    rules: Rules,
    key: K,
    share: H,
    mode: M,
}

impl<S, K, H, M> LockService<S, K, H, M> {
    pub(crate) fn new(inner: S, rules: Rules, key: K, share: H, mode: M) -> Self {
        Self {
            inner,
            rules,
            key,
            share,
            mode,
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

impl<S, K, H, M, Request> Service<Request> for LockService<S, K, H, M>
where
    S: Service<Request> + Clone,
    K: ExtractKey<Request>,
    H: ShareHold<Request> + Clone,
    M: Mode<S, Request> + Clone,
{
    type Response = M::Response;
    type Error = LockError<S::Error>;
    type Future = ResponseFuture<S, Request, K, H, M>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture::new(
            self.key.extract(request),
            self.inner.clone(),
            self.rules.clone(),
            self.share.clone(),
            self.mode.clone(),
        )
    }
}
