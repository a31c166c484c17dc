//! Keys from JSON bodies: the values of fields, and the limits for reading a body.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use axum::{
    Json, Router,
    body::Body,
    extract::Request,
    http::{StatusCode, header},
    routing::any,
};
use redlock_axum::{BodyLimit, LockLayer, Locked, json_field, key};
use redlock_tokio::test_util::TestNodes;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::{self, MS, problem, refused, say_key, send, server, text};

const NEITHER: &str = "neither a string nor a number";

/// A route whose handler returns its JSON.
async fn echo(field: &str, limit: impl Into<BodyLimit>) -> (Router, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let handler = async move |locked: Locked, Json(body): Json<Value>| {
        count.fetch_add(1, SeqCst);
        let key = support::key_of(&locked);
        Json(json!({ "key": key, "body": body }))
    };
    let redlock = TestNodes::new().connect().await.unwrap();
    let layer = LockLayer::new(redlock, key("id", json_field(field, limit)));
    let app = Router::new().route("/", any(handler)).route_layer(layer);
    (app, ran)
}

fn posted(body: impl Into<Body>) -> Request {
    let request = Request::post("/").header(header::CONTENT_TYPE, "application/json");
    request.body(body.into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_field_of_the_body_is_the_key_and_the_handler_still_reads_the_body() {
    let (app, ran) = echo("order.id", 100).await;
    for (id, key) in [
        (json!("a:b"), r"id:a\:b"),
        (json!(42), "id:42"),
        (json!(-1), "id:-1"),
    ] {
        let body = json!({ "order": { "id": id, "of": [1, 2] }, "note": "ü" });
        let response = text(send(&app, posted(body.to_string())).await).await;
        let response: Value = serde_json::from_str(&response).unwrap();
        assert_eq!(response, json!({ "key": key, "body": body }));
    }
    assert_eq!(ran.swap(0, SeqCst), 3);
    for (body, reason) in [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{}", "no field `order.id`"),
        (r#"{"order": 1}"#, "no field `order.id`"),
        (r#"{"order.id": 1}"#, "no field `order.id`"),
        (r#"[{"order": {"id": 1}}]"#, "no field `order.id`"),
        (r#"{"order": {"id": null}}"#, NEITHER),
        (r#"{"order": {"id": {}}}"#, NEITHER),
    ] {
        refused(&app, posted(body), 400, reason).await;
    }
    assert_eq!(ran.load(SeqCst), 0);
}

/// Returns the key of a body `{"id": ..}`, or why it has none.
async fn key_of(app: &Router, id: &str) -> Result<String, String> {
    let response = send(app, posted(format!(r#"{{"id": {id} }}"#))).await;
    if response.status() == StatusCode::OK {
        let body: Value = serde_json::from_str(&text(response).await).unwrap();
        Ok(body["key"].as_str().unwrap().to_owned())
    } else {
        let body = problem(response, 400, "key").await;
        Err(body["detail"].as_str().unwrap().to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn whole_numbers_and_strings_are_keys_as_they_are_written() {
    let (app, _) = echo("id", 1000).await;
    let long = "123456789012345678901234567890";
    for (written, value) in [
        ("0", "0"),
        ("42", "42"),
        (r#""42""#, "42"),
        ("18446744073709551615", "18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775808"),
        (r#""42.10""#, "42.10"),
        (r#""1e2""#, "1e2"),
        (r#""-0""#, "-0"),
        (r#""123456789012345678901234567890""#, long),
        (r#""\u0061\u00fc""#, "aü"),
    ] {
        assert_eq!(key_of(&app, written).await, Ok(format!("id:{value}")));
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_that_can_be_written_in_several_ways_are_refused() {
    let (app, ran) = echo("id", 1000).await;
    for written in [
        "1e2",
        "1E2",
        "42.10",
        "42.0",
        "-0",
        "-0.0",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
    ] {
        let reason = key_of(&app, written).await.unwrap_err();
        let says_how = reason.contains("send it as a string");
        assert!(says_how, "{written}: {reason}");
    }
    for (written, expected) in [
        ("true", NEITHER),
        ("[7]", NEITHER),
        (r#""\ud800""#, "not JSON"),
        (r#""""#, "the field `id` is empty"),
    ] {
        let reason = key_of(&app, written).await.unwrap_err();
        assert!(reason.contains(expected), "{written}: {reason}");
    }
    assert_eq!(ran.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_field_that_occurs_twice_is_refused() {
    let (app, ran) = echo("order.id", 1000).await;
    for twice in [
        r#"{"order": {"id": 1, "id": 2}}"#,
        r#"{"order": {"id": 1, "id": 1}}"#,
        r#"{"order": {"id": 1, "\u0069d": 2}}"#,
        r#"{"order": {"id": 1}, "order": {"id": 2}}"#,
        r#"{"order": {"id": 1}, "order": null}"#,
    ] {
        refused(&app, posted(twice), 400, "more than one field `order.id`").await;
    }
    assert_eq!(ran.load(SeqCst), 0);
    let others = r#"{"id": 1, "id": 2, "order": {"id": 3, "of": {"id": 4}}}"#;
    assert_eq!(send(&app, posted(others)).await.status(), StatusCode::OK);
}

/// The client sends its head and a part of its body, and then nothing.
#[tokio::test]
async fn a_server_answers_a_client_whose_body_stops_and_closes_the_connection() {
    let (app, ran) = echo("id", BodyLimit::new(1000).time(MS(50))).await;
    let mut client = TcpStream::connect(server::serve(app).await).await.unwrap();
    let sent = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{";
    client.write_all(sent).await.unwrap();
    let mut response = String::new();
    let read = client.read_to_string(&mut response);
    timeout(server::LIMIT, read).await.unwrap().unwrap();
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert_eq!(ran.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn fields_of_one_key_share_the_body_and_the_strictest_limit() {
    let redlock = TestNodes::new().connect().await.unwrap();
    let parts = [json_field("a", 100), json_field("b", 20)];
    let layer = LockLayer::new(redlock, key("pair", parts));
    let app = Router::new().route("/", any(say_key)).route_layer(layer);
    let response = send(&app, posted(r#"{"a":1,"b":"2"}"#)).await;
    assert_eq!(text(response).await, "pair:1:2");
    let long = posted(r#"{"a":1,"b":"2","c":3456}"#);
    refused(&app, long, 413, "over 20 bytes").await;
}
