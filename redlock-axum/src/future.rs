use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use pin_project::pin_project;
use tower_service::Service;

use crate::{locked::InsertHold, rejection::RejectionPolicy};

/// The future of a request behind a [`LockLayer`](crate::LockLayer).
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S>
where
    S: Service<Request>,
{
    #[pin]
    inner: redlock_tower::ResponseFuture<S, Request, InsertHold>,
    policy: RejectionPolicy,
}

impl<S> ResponseFuture<S>
where
    S: Service<Request>,
{
    pub(crate) fn new(
        inner: redlock_tower::ResponseFuture<S, Request, InsertHold>,
        policy: RejectionPolicy,
    ) -> Self {
        Self { inner, policy }
    }
}

impl<S> Future for ResponseFuture<S>
where
    S: Service<Request, Error = Infallible>,
    S::Response: IntoResponse,
{
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(Ok(match ready!(this.inner.poll(cx)) {
            Ok(response) => response.into_response(),
            Err(error) => this.policy.respond(error),
        }))
    }
}

impl<S> fmt::Debug for ResponseFuture<S>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
