//! gRPC services of `tonic` behind a lock.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use futures::{FutureExt, future::Map};
use http::Response;
use tonic::{Code, Status, server::NamedService};
use tower_layer::Layer;
use tower_service::Service;

#[cfg(doc)]
use crate::LockLayer;
use crate::{KeyRejection, LockError, LockService};

/// Answers for what a lock layer refuses with a gRPC status, so that the stack never fails, as `tonic`
/// wants it.
///
/// | error | status |
/// |---|---|
/// | [`Contended`](LockError::Contended) | `ABORTED` |
/// | [`QueueFull`](LockError::QueueFull), [`WaitTooLong`](LockError::WaitTooLong) | `RESOURCE_EXHAUSTED` |
/// | [`Unavailable`](LockError::Unavailable) | `UNAVAILABLE` |
/// | [`Key`](LockError::Key), the caller's fault | `INVALID_ARGUMENT` |
/// | [`Key`](LockError::Key), the request did not arrive in time | `DEADLINE_EXCEEDED` |
/// | [`Key`](LockError::Key) or [`Misconfigured`](LockError::Misconfigured), the layer's | `INTERNAL` |
/// | [`Lost`](LockError::Lost) | `UNKNOWN`: the call ran, and its outcome is not known |
///
/// A stream that [holds the lock](LockLayer::hold_until_body_end) and is cut off ends without a status of
/// its own, which clients show as `INTERNAL`.
///
/// Contention is not `UNAVAILABLE`, because proxies that see that take hosts out of service.
///
/// ```
/// # use std::{convert::Infallible, task::{Context, Poll}};
/// use redlock_tokio::Key;
/// use redlock_tower::{CallerDeadline, GrpcStatusLayer, KeyRejection, LockLayer, LockRequest};
/// use tonic::{body::Body, service::Routes};
/// use tower::ServiceBuilder;
/// # #[derive(Clone)]
/// # struct OrdersServer;
/// # impl tonic::server::NamedService for OrdersServer { const NAME: &'static str = "shop.Orders"; }
/// # impl tower_service::Service<http::Request<Body>> for OrdersServer {
/// #     type Response = http::Response<Body>;
/// #     type Error = Infallible;
/// #     type Future = std::future::Ready<Result<Self::Response, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, _: http::Request<Body>) -> Self::Future { std::future::ready(Ok(Default::default())) }
/// # }
///
/// /// The tenant of a call, in its metadata. Waits no longer than the caller does.
/// fn tenant(call: &http::Request<Body>) -> Result<LockRequest, KeyRejection> {
///     let tenant = call.headers().get("tenant").ok_or("no `tenant` in the metadata")?;
///     let wanted = LockRequest::new(Key::parts(["tenant".as_bytes(), tenant.as_bytes()])?);
///     let deadline = CallerDeadline::of(call).map(|it| it.remaining());
///     Ok(deadline.map_or(wanted.clone(), |it| wanted.wait_at_most(it)))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = redlock_tokio::Redlock::embedded().await?;
/// let orders = ServiceBuilder::new()
///     .layer(GrpcStatusLayer)
///     .layer(LockLayer::new(redlock, tenant).detached())
///     .service(OrdersServer); // made by tonic-build
/// let routes = Routes::new(orders); // or Server::builder().add_service(orders)
/// # let _ = routes;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcStatusLayer;

impl<S> Layer<S> for GrpcStatusLayer {
    type Service = GrpcStatusService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcStatusService { inner }
    }
}

/// A service whose lock errors are gRPC statuses. Made by [`GrpcStatusLayer`].
#[derive(Clone, Copy, Debug)]
pub struct GrpcStatusService<S> {
    inner: S,
}

impl<S, Request, B> Service<Request> for GrpcStatusService<S>
where
    S: Service<Request, Response = Response<B>, Error = LockError<Infallible>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future =
        Map<S::Future, fn(Result<Response<B>, S::Error>) -> Result<Response<B>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A lock service is always ready.
        self.inner.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let answer = self.inner.call(request);
        answer.map(|outcome| Ok(outcome.unwrap_or_else(|error| Status::from(error).into_http())))
    }
}

/// What the caller is told. Neither the key nor its holder.
impl From<LockError<Infallible>> for Status {
    fn from(error: LockError<Infallible>) -> Self {
        let (code, message) = match error {
            LockError::Contended(_) => (Code::Aborted, "another call is working on this resource"),
            LockError::QueueFull(_) => (
                Code::ResourceExhausted,
                "too many calls wait for this resource",
            ),
            LockError::WaitTooLong(_) => (
                Code::ResourceExhausted,
                "the expected wait for this resource exceeds the limit",
            ),
            LockError::Unavailable(_) => (Code::Unavailable, "no lock could be taken"),
            LockError::Key(error @ (KeyRejection::Request(_) | KeyRejection::TooLarge { .. })) => {
                return Self::invalid_argument(error.to_string());
            }
            LockError::Key(error @ KeyRejection::TooSlow { .. }) => {
                return Self::deadline_exceeded(error.to_string());
            }
            LockError::Key(KeyRejection::Layer(_)) | LockError::Misconfigured(_) => {
                tracing::error!(%error, "misconfigured redlock_tower::LockLayer");
                (Code::Internal, "the service is misconfigured")
            }
            LockError::Lost(_) => (
                Code::Unknown,
                "the lock was lost while the call ran: find out what it has done",
            ),
            LockError::Inner(never) => match never {},
        };
        Self::new(code, message)
    }
}

impl<S: NamedService, K, H, M> NamedService for LockService<S, K, H, M> {
    const NAME: &'static str = S::NAME;
}

impl<S: NamedService> NamedService for GrpcStatusService<S> {
    const NAME: &'static str = S::NAME;
}
