use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::response::{IntoResponse, Response};
use futures::{TryFutureExt, future::MapOk};
use tower_service::Service;

use crate::Request;

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
