use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use redlock_tower::ExtractKey;
use tower_service::Service;

use crate::{ResponseFuture, key::MethodKey, locked::InsertHold, rejection::RejectionPolicy};

/// A service that holds a lock while its inner service handles a request. Made by
/// [`LockLayer`](crate::LockLayer).
#[derive(Debug)]
pub struct LockService<S, K> {
    inner: redlock_tower::LockService<S, MethodKey<K>, InsertHold>,
    policy: RejectionPolicy,
}

impl<S, K> LockService<S, K> {
    pub(crate) fn new(
        inner: redlock_tower::LockService<S, MethodKey<K>, InsertHold>,
        policy: RejectionPolicy,
    ) -> Self {
        Self { inner, policy }
    }
}

impl<S: Clone, K> Clone for LockService<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            policy: self.policy,
        }
    }
}

impl<S, K> Service<Request> for LockService<S, K>
where
    S: Service<Request, Error = Infallible> + Clone,
    S::Response: IntoResponse,
    K: ExtractKey<Request>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture<S>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The lock is waited for in the response future, and so is the inner service.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture::new(self.inner.call(request), self.policy)
    }
}
