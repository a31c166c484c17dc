use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::{IntoResponse, Response};
use futures::{TryFutureExt, future::MapOk};
use tower_service::Service;

use crate::Request;

/// The service behind the layer. It turns answers into responses in the task where the handler ran.
///
/// Clones share the service, which is cloned once for each call: a clone of axum's `Route` costs an allocation.
#[derive(Debug)]
pub(crate) struct Responding<S> {
    shared: Arc<S>,
    /// The clone that was made ready for the next call.
    ready: Option<S>,
}

impl<S> Responding<S> {
    pub(crate) fn new(service: S) -> Self {
        Self {
            shared: Arc::new(service),
            ready: None,
        }
    }
}

impl<S> Clone for Responding<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            ready: None,
        }
    }
}

impl<S> Service<Request> for Responding<S>
where
    S: Service<Request, Error = Infallible> + Clone,
    S::Response: IntoResponse,
{
    type Response = Response;
    type Error = Infallible;
    type Future = MapOk<S::Future, fn(S::Response) -> Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let service = self.ready.get_or_insert_with(|| S::clone(&self.shared));
        service.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let ready = self.ready.take();
        let mut service = ready.unwrap_or_else(|| S::clone(&self.shared));
        service.call(request).map_ok(IntoResponse::into_response)
    }
}
