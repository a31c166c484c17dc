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
async fn nested_services_and_fallbacks_have_the_parameters_of_their_path() {
    let it = Bed::new().await;
    let _guard = it.nodes.contend("event:rock").await.unwrap();
    let inner = || Router::new().fallback(async || "ran");
    let opaque = service_fn(async |_: Request| Ok::<_, Infallible>("ran".into_response()));
    let layer = it.layer().wait(MS(50));
    // A fallback is not a route.
    let on_fallback = Router::new().nest("/events/{event}", inner());
    let on_service = Router::new().nest_service("/events/{event}", inner());
    let on_opaque = Router::new().nest_service("/events/{event}", opaque);
    let on_route = Router::new().route_service("/events/{event}/x", opaque);
    for app in [
        on_fallback.layer(layer.clone()),
        on_service.clone().layer(layer.clone()),
        on_service.route_layer(layer.clone()),
        on_opaque.route_layer(layer.clone()),
        on_route.route_layer(layer.clone()),
    ] {
        problem(post(&app, "/events/rock/x").await, 423, "locked").await;
        assert_eq!(text(post(&app, "/events/jazz/x").await).await, "ran");
    }
    let wrong = Router::new().nest_service("/venues/{venue}", opaque);
    let request = || request(Method::POST, "/venues/rock/x");
    let reason = "no path parameter `event`";
    misconfigured(&wrong.route_layer(layer), request(), reason).await;

    let by_route = LockLayer::new(it.redlock.clone(), key("route", matched_path()));
    let app = Router::new().nest_service("/venues/{venue}", opaque);
    misconfigured(&app.route_layer(by_route), request(), "has no matched path").await;
}

#[tokio::test(start_paused = true)]
async fn a_layer_around_the_whole_router_says_that_it_is_in_the_wrong_place() {
    let it = Bed::new().await;
    let around = it.layer().layer(it.router());
    let (log, _listening) = Log::listen();
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

#[tokio::test(start_paused = true)]
async fn the_layer_works_on_routers_nested_routers_and_method_routers() {
    let it = Bed::new().await;
    let layer = it.layer().wait(MS(50));
    let _guard = it.nodes.contend("event:rock").await.unwrap();

    let handler = async |Path(_): Path<String>| "ran";
    let on_router = it.router().layer(layer.clone());
    let nested = Router::new().nest("/v1", it.app(layer.clone()));
    let on_outer = Router::new().route("/x", routed_post(async || "ran"));
    let by_tenant = LockLayer::new(it.redlock.clone(), key("tenant", path("tenant")));
    let on_outer = Router::new().nest("/{tenant}", on_outer).layer(by_tenant);
    let on_method = Router::new().route("/events/{event}", routed_post(handler).layer(layer));
    for (app, prefix) in [(&on_router, ""), (&nested, "/v1"), (&on_method, "")] {
        let held = post(app, &format!("{prefix}/events/rock")).await;
        problem(held, 423, "locked").await;
        let free = post(app, &format!("{prefix}/events/jazz")).await;
        assert_eq!(free.status(), 200);
        let nowhere = post(app, "/nowhere").await.status();
        assert_eq!(nowhere, 404, "and no complaint about a missing parameter");
    }
    assert_eq!(post(&on_outer, "/acme/x").await.status(), 200);
}
