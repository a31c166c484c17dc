//! A gRPC service behind a lock, in the router of `tonic`.

use std::{
    convert::Infallible,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use redlock_tokio::test_util::TestNodes;
use redlock_tower::{
    CallerDeadline, GrpcStatusLayer, KeyRejection, LockLayer, LockRequest, OnLost,
};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status, body::Body, server::NamedService, service::Routes};
use tower::{Layer, ServiceExt};
use tower_service::Service;

/// Looks to a layer like a service that `tonic-build` generates. A call takes five seconds.
#[derive(Clone)]
struct OrdersServer;

impl NamedService for OrdersServer {
    const NAME: &'static str = "shop.Orders";
}

impl Service<Request<Body>> for OrdersServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _call: Request<Body>) -> Self::Future {
        let answer = async {
            sleep(Duration::from_secs(5)).await;
            Ok(Status::ok("").into_http())
        };
        answer.boxed()
    }
}

fn order(call: &Request<Body>) -> Result<LockRequest, KeyRejection> {
    let order = call.headers().get("order").ok_or("no `order`")?;
    if order == "layer" {
        return Err(KeyRejection::layer("no such part"));
    }
    if order == "large" {
        return Err(KeyRejection::TooLarge { limit: 64 });
    }
    if order == "slow" {
        let limit = Duration::from_secs(10);
        return Err(KeyRejection::TooSlow { limit });
    }
    let wanted = LockRequest::new(order.as_bytes());
    let deadline = CallerDeadline::of(call).map(|it| it.remaining());
    Ok(deadline.map_or(wanted.clone(), |it| wanted.wait_at_most(it)))
}

/// Makes a call for an order with a timeout, and returns the code and the message.
async fn call(routes: &Routes, order: Option<&str>, timeout: &str) -> (Code, String) {
    let mut call = Request::post("/shop.Orders/Place").header("grpc-timeout", timeout);
    if let Some(order) = order {
        call = call.header("order", order);
    }
    let call = call.body(Body::empty()).unwrap();
    let response = routes.clone().oneshot(call).await.unwrap();
    assert_eq!(response.status(), 200, "a status of gRPC is in the headers");
    let status = Status::from_header_map(response.headers()).expect("a status");
    let hint = status.metadata().get("grpc-retry-pushback-ms");
    let millis = hint.map(|it| it.to_str().unwrap().parse().unwrap());
    let (code, message) = (status.code(), status.message().to_owned());
    match code {
        Code::Aborted | Code::ResourceExhausted | Code::Unavailable => {
            assert!((1000..60_000).contains(&millis.unwrap()), "{millis:?}");
        }
        _ => assert_eq!(millis, None, "a retry does not help"),
    }
    (code, message)
}

#[tokio::test(start_paused = true)]
async fn a_service_keeps_its_name_and_refusals_are_statuses() {
    let nodes = TestNodes::new();
    let redlock = nodes.connect().await.unwrap();
    let lock = LockLayer::new(redlock.clone(), order);
    let served = |lock: LockLayer<_>| Routes::new(GrpcStatusLayer.layer(lock.layer(OrdersServer)));
    let routes = served(lock.clone().detached());
    assert_eq!(call(&routes, Some("1"), "9S").await.0, Code::Ok);

    let guard = nodes.contend("secret").await.unwrap();
    let asked = Instant::now();
    let (code, message) = call(&routes, Some("secret"), "300m").await;
    assert_eq!(code, Code::Aborted);
    assert!(!message.contains("secret"), "{message}");
    assert!(
        asked.elapsed() <= Duration::from_millis(310),
        "no longer than the caller waits"
    );
    drop(guard);

    let guard = redlock.lock("1").await.unwrap();
    for (full, expected) in [
        (lock.clone().max_waiters_total(0), "wait for resources"),
        (
            lock.clone().max_waiters_per_key(0),
            "wait for this resource",
        ),
    ] {
        let (code, message) = call(&served(full.detached()), Some("1"), "9S").await;
        assert_eq!(code, Code::ResourceExhausted);
        assert!(message.contains(expected), "{message}");
    }
    drop(guard);
    let wrong = served(lock.clone().ttl(Duration::ZERO).detached());
    for (routes, order, expected, words) in [
        (&routes, None, Code::InvalidArgument, "no `order`"),
        (&routes, Some("layer"), Code::Internal, ""),
        (&wrong, Some("1"), Code::Internal, ""),
        (
            &routes,
            Some("large"),
            Code::InvalidArgument,
            "over 64 bytes",
        ),
        (&routes, Some("slow"), Code::DeadlineExceeded, "within 10s"),
    ] {
        let (code, message) = call(routes, order, "9S").await;
        assert_eq!(code, expected, "{order:?}");
        assert!(message.contains(words), "{message}");
    }

    let fails = served(lock.on_lost(OnLost::Fail).detached());
    nodes.lose_next("2");
    assert_eq!(call(&fails, Some("2"), "9S").await.0, Code::Unknown);
    nodes.go_down();
    assert_eq!(call(&routes, Some("3"), "300m").await.0, Code::Unavailable);
}
