//! The OpenAPI document of a service with locks, compared to the responses of that service.

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::post};
use http_body_util::BodyExt;
use redlock_axum::{LockLayer, LockResponses, key, path};
use redlock_tokio::test_util::TestNodes;
use serde_json::Value;
use tower::ServiceExt;
use utoipa::{OpenApi, openapi::OpenApi as Document};

#[utoipa::path(
    post,
    path = "/orders/{order}",
    params(("order" = u64, Path)),
    responses((status = 200, description = "Placed."), LockResponses)
)]
#[expect(dead_code, reason = "utoipa reads its attributes")]
async fn place() {}

#[derive(OpenApi)]
#[openapi(paths(place))]
struct Shop;

fn responses(document: &Document) -> Value {
    let document = serde_json::to_value(document).unwrap();
    document["paths"]["/orders/{order}"]["post"]["responses"].clone()
}

#[test]
fn the_document_has_the_responses_of_the_lock() {
    let responses = responses(&Shop::openapi());
    let statuses: Vec<_> = responses.as_object().unwrap().keys().collect();
    assert_eq!(statuses, ["200", "423", "429", "503"]);
    for status in ["423", "429", "503"] {
        let response = &responses[status];
        let text = response["description"].as_str().unwrap();
        assert!(text.contains("a retry is safe"), "{text}");
        let retry_after = &response["headers"]["Retry-After"]["schema"];
        assert_eq!(retry_after["type"], "integer");
        assert!(response["content"]["application/problem+json"]["schema"].is_object());
    }
}

#[tokio::test(start_paused = true)]
async fn the_responses_of_a_service_match_its_document() {
    let nodes = TestNodes::new();
    let layer = LockLayer::new(nodes.connect().await.unwrap(), key("order", path("order")));
    let app = Router::new().route("/orders/{order}", post(async || "placed"));
    let app = app.route_layer(layer);
    let _guard = nodes.contend("order:7").await.unwrap();
    let request = Request::post("/orders/7").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    let status = response.status().as_str().to_owned();
    let described = responses(&Shop::openapi())[&status].clone();
    let mut headers = described["headers"].as_object().unwrap().keys();
    assert!(headers.all(|name| response.headers().contains_key(name)));
    let kind = response.headers()["content-type"].to_str().unwrap();
    let schema = &described["content"][kind]["schema"];
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    for (name, value) in body.as_object().unwrap() {
        let kind = match value {
            Value::String(_) => "string",
            Value::Number(_) => "integer",
            Value::Bool(_) => "boolean",
            other => panic!("{other}"),
        };
        let described = &properties[name]["type"];
        let of_several = described.as_array();
        let is_it = *described == kind || of_several.is_some_and(|it| it.contains(&kind.into()));
        assert!(is_it, "{name}: {value}, but {described}");
    }
    let required = schema["required"].as_array().unwrap();
    // What a handler answers that locks by hand has none.
    assert!(!required.contains(&"handler_ran".into()) && properties.contains_key("handler_ran"));
    for name in required {
        assert!(body.get(name.as_str().unwrap()).is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_layer_describes_its_own_contended_status() {
    let redlock = TestNodes::new().connect().await.unwrap();
    let layer = LockLayer::new(redlock, key("order", path("order")));
    let layer = layer.contended_status(StatusCode::CONFLICT);
    let statuses: Vec<_> = layer.openapi_responses().into_keys().collect();
    assert_eq!(statuses, ["409", "429", "503"]);
    let both = layer.contended_status(StatusCode::TOO_MANY_REQUESTS);
    let statuses: Vec<_> = both.openapi_responses().into_keys().collect();
    assert_eq!(statuses, ["429", "503"]);
}
