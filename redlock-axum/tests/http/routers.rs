//! Places for a layer: routers, routes, nested services and fallbacks.

use std::convert::Infallible;

use axum::{
    Router,
    extract::{Path, Request},
    http::Method,
    response::IntoResponse,
    routing::post as routed_post,
};
use redlock_axum::{LockLayer, key, matched_path, path};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Bed, MS, log::Log, misconfigured, post, problem, request, rock, text};

#[tokio::test(start_paused = true)]
async fn a_layer_has_the_parameters_of_its_path_in_every_place() {
    let it = Bed::new().await;
    let _guard = it.nodes.contend("event:rock").await.unwrap();
    let inner = || Router::new().fallback(async || "ran");
    let opaque = service_fn(async |_: Request| Ok::<_, Infallible>("ran".into_response()));
    let handler = async |Path(_): Path<String>| "ran";
    let layer = it.layer().wait(MS(50));
    // A fallback is not a route.
    let on_fallback = Router::new().nest("/events/{event}", inner());
    let on_service = Router::new().nest_service("/events/{event}", inner());
    let on_opaque = Router::new().nest_service("/events/{event}", opaque);
    let on_route = Router::new().route_service("/events/{event}/x", opaque);
    let on_method = routed_post(handler).layer(layer.clone());
    for (app, before, behind) in [
        (on_fallback.layer(layer.clone()), "", "/x"),
        (on_service.clone().layer(layer.clone()), "", "/x"),
        (on_service.route_layer(layer.clone()), "", "/x"),
        (on_opaque.route_layer(layer.clone()), "", "/x"),
        (on_route.route_layer(layer.clone()), "", "/x"),
        (it.router().layer(layer.clone()), "", ""),
        (Router::new().nest("/v1", it.app(layer.clone())), "/v1", ""),
        (Router::new().route("/events/{event}", on_method), "", ""),
    ] {
        let held = post(&app, &format!("{before}/events/rock{behind}")).await;
        problem(held, 423, "locked").await;
        let free = post(&app, &format!("{before}/events/jazz{behind}")).await;
        assert_eq!(free.status(), 200);
        let nowhere = post(&app, "/nowhere").await.status();
        assert_eq!(nowhere, 404, "and no complaint about a missing parameter");
    }
    let on_outer = Router::new().route("/x", routed_post(async || "ran"));
    let by_tenant = LockLayer::new(it.redlock.clone(), key("tenant", path("tenant")));
    let on_outer = Router::new().nest("/{tenant}", on_outer).layer(by_tenant);
    assert_eq!(post(&on_outer, "/acme/x").await.status(), 200);

    let wrong = Router::new().nest_service("/venues/{venue}", opaque);
    let request = || request(Method::POST, "/venues/rock/x");
    let reason = "no path parameter `event`";
    misconfigured(&wrong.clone().route_layer(layer), request(), reason).await;
    let by_route = LockLayer::new(it.redlock.clone(), key("route", matched_path()));
    let reason = "has no matched path";
    misconfigured(&wrong.route_layer(by_route), request(), reason).await;
}

#[tokio::test(start_paused = true)]
async fn a_layer_around_the_whole_router_says_that_it_is_in_the_wrong_place() {
    let it = Bed::new().await;
    let around = it.layer().layer(it.router());
    let (log, _listening) = Log::with_spans();
    let response = around.oneshot(rock(Method::POST)).await;
    problem(response.unwrap(), 500, "misconfigured").await;
    assert!(log.mentions("around the whole router"));
    assert_eq!(it.ran(), 0);

    // A key that needs no route works there.
    let layer = LockLayer::new(it.redlock.clone(), |_: &Request| "k");
    let around = layer.layer(it.router());
    let response = around.oneshot(rock(Method::POST)).await;
    assert_eq!(text(response.unwrap()).await, r#"rock under Some("k")"#);
}
