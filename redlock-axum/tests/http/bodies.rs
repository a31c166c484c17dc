//! Bodies of requests: they arrive before the wait for the lock, unless the layer leaves them to the handler.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::HeaderMap,
    middleware::map_request,
};
use futures::stream;
use http_body_util::{BodyExt, Full};
use redlock_axum::{
    BodyLimit, CallerDeadline, LockLayer, Locked, RequestKey, json_field, key, path,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::support::{
    Bed, MS, assert_detail, event_route, may_retry, problem, refused, send,
    server::{LIMIT, ROCK, serve},
    terms, text, that_stops,
};

/// A route `/events/{event}` whose handler reads its whole body under the lock.
fn reading<K: RequestKey>(layer: LockLayer<K>) -> Router {
    let handler = async |locked: Option<Locked>, body: Bytes| {
        format!("{} bytes, locked: {}", body.len(), locked.is_some())
    };
    event_route(handler, layer)
}

fn posted(body: impl Into<Body>) -> Request {
    Request::post("/events/rock").body(body.into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_holds_no_lock_and_is_408() {
    let it = Bed::new().await;
    let shorter = it.layer().body_limit(BodyLimit::new(9).time(MS(300)));
    for (layer, limit) in [(it.layer(), MS(30_000)), (shorter, MS(300))] {
        let app = reading(layer);
        let asked = Instant::now();
        let stopped = tokio::spawn({
            let app = app.clone();
            async move { send(&app, posted(that_stops())).await }
        });
        sleep(MS(100)).await;
        let other = send(&app, posted("whole")).await;
        assert_eq!(text(other).await, "5 bytes, locked: true");
        assert!(asked.elapsed() < MS(200), "{:?}", asked.elapsed());
        let body = problem(stopped.await.unwrap(), 408, "too-slow").await;
        let waited = asked.elapsed();
        assert!((limit..limit + MS(2)).contains(&waited), "{waited:?}");
        assert!(may_retry(&body), "{body}");
        assert_detail(&body, &format!("within {limit:?}"));
    }
    assert_eq!(it.redlock.queue().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn the_layer_waits_for_a_body_no_longer_than_the_caller() {
    let it = Bed::new().await;
    let mut request = posted(that_stops());
    let deadline = CallerDeadline::after(MS(200)).unwrap();
    request.extensions_mut().insert(deadline);
    let asked = Instant::now();
    problem(send(&reading(it.layer()), request).await, 408, "too-slow").await;
    assert!(asked.elapsed() < MS(202), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_413() {
    let it = Bed::new().await;
    let app = reading(it.layer());
    let of = |bytes: usize| vec![b'x'; bytes];
    let most = 2 * 1024 * 1024;
    let said = text(send(&app, posted(of(most))).await).await;
    assert_eq!(said, format!("{most} bytes, locked: true"));
    let streamed = stream::iter((0..most / 4096 + 1).map(move |_| Ok::<_, io::Error>(of(4096))));
    // The number of bytes is known before, or not.
    for body in [Body::from(of(most + 1)), Body::from_stream(streamed)] {
        let asked = Instant::now();
        let body = problem(send(&app, posted(body)).await, 413, "too-large").await;
        let seen = (terms(&body), asked.elapsed());
        assert_eq!(seen, ((false, None), Duration::ZERO));
        assert_detail(&body, "over 2097152 bytes");
    }
    let app = reading(it.layer().body_limit(5));
    assert_eq!(send(&app, posted("12345")).await.status(), 200);
    problem(send(&app, posted("123456")).await, 413, "too-large").await;
    let broken = stream::iter([Ok("1"), Err("hung up")]);
    let broken = posted(Body::from_stream(broken));
    refused(&app, broken, 400, "cannot be read").await;
}

/// Each piece of a body that is kept as it came costs some 40 bytes more.
#[test]
fn a_body_in_tiny_pieces_takes_no_more_memory_than_a_whole_one() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let length = 1 << 20;
    let used = allocation_counter::measure(|| {
        runtime.block_on(async {
            let it = Bed::new().await;
            let pieces = stream::iter((0..length).map(|_| Ok::<_, io::Error>("x")));
            let response = send(&reading(it.layer()), posted(Body::from_stream(pieces))).await;
            let expected = format!("{length} bytes, locked: true");
            assert_eq!(text(response).await, expected);
        });
    });
    assert!(used.bytes_max < 4 * length, "{used:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_of_the_key_has_the_limits_of_its_field() {
    let it = Bed::new().await;
    let by_field = |bytes| LockLayer::new(it.redlock.clone(), key("id", json_field("id", bytes)));
    let body = r#"{"id": "0123456789"}"#;
    let app = reading(by_field(body.len()).body_limit(5));
    let said = text(send(&app, posted(body)).await).await;
    assert_eq!(said, "20 bytes, locked: true");
    let app = reading(by_field(5));
    problem(send(&app, posted(body)).await, 413, "too-large").await;
}

#[tokio::test(start_paused = true)]
async fn the_handler_gets_the_body_with_its_trailers() {
    let it = Bed::new().await;
    let handler = async |request: Request| {
        let body = request.into_body().collect().await.unwrap();
        let sum = body
            .trailers()
            .map(|it| it["sum"].to_str().unwrap().to_owned());
        format!("{:?} {sum:?}", body.to_bytes())
    };
    let app = event_route(handler, it.layer());
    let mut trailers = HeaderMap::new();
    trailers.insert("sum", "7".parse().unwrap());
    let with = Full::new(Bytes::from("body"));
    let with = with.with_trailers(std::future::ready(Some(Ok(trailers))));
    for (body, said) in [
        (Body::new(with), r#"b"body" Some("7")"#),
        (Body::from("body"), r#"b"body" None"#),
        (Body::empty(), r#"b"" None"#),
    ] {
        assert_eq!(text(send(&app, posted(body)).await).await, said);
    }
}

/// Such a middleware may decompress the body. A layer that has read the body says nothing about the new one.
#[tokio::test(start_paused = true)]
async fn a_body_that_a_middleware_replaces_holds_no_lock_of_an_inner_layer() {
    let it = Bed::new().await;
    let by_path = LockLayer::new(it.redlock.clone(), key("venue", path("event")));
    let by_field = LockLayer::new(it.redlock.clone(), key("id", json_field("id", 64)));
    let inner = || reading(it.layer()).route_layer(map_request(replace_body));
    for app in [inner().route_layer(by_path), inner().route_layer(by_field)] {
        let sent = tokio::spawn(async move { send(&app, posted(r#"{"id": 7}"#)).await });
        sleep(MS(1000)).await;
        assert!(!it.nodes.is_locked(ROCK));
        problem(sent.await.unwrap(), 408, "too-slow").await;
    }
}

async fn replace_body(request: Request) -> Request {
    request.map(|_| that_stops())
}

/// The outermost layer waits for the body.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_slow_body_is_not_part_of_the_wait() {
    let it = Bed::new().await;
    let venue = LockLayer::new(it.redlock.clone(), key("venue", path("event")));
    let app = reading(it.layer()).route_layer(venue.wait(MS(1000)).body_limit(9));
    let slow = stream::once(async {
        sleep(MS(1900)).await;
        Ok::<_, io::Error>("whole")
    });
    let _guard = it.nodes.contend("venue:rock").await.unwrap();
    let asked = Instant::now();
    let body = Body::from_stream(slow);
    problem(send(&app, posted(body)).await, 423, "locked").await;
    let waited = asked.elapsed();
    assert!((MS(2700)..=MS(2902)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_needs_no_lock_keeps_its_body() {
    let it = Bed::new().await;
    let handler = async |locked: Option<Locked>| format!("locked: {}", locked.is_some());
    let app = event_route(handler, it.layer());
    let get = Request::get("/events/rock").body(that_stops()).unwrap();
    assert_eq!(text(send(&app, get).await).await, "locked: false");
}

/// A client of HTTP/1 that has sent a head.
async fn connected(at: SocketAddr, headers: &str) -> TcpStream {
    let mut client = TcpStream::connect(at).await.unwrap();
    let head = format!("POST /events/rock HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client
}

async fn read(client: &mut TcpStream) -> String {
    let mut bytes = [0; 4096];
    let read = timeout(LIMIT, client.read(&mut bytes)).await;
    String::from_utf8(bytes[..read.unwrap().unwrap()].to_vec()).unwrap()
}

#[tokio::test]
async fn a_client_that_asks_first_sends_its_body_before_the_lock_or_under_it() {
    for streams in [false, true] {
        let it = Bed::new().await;
        let layer = it.layer().wait(3 * LIMIT);
        let layer = match streams {
            true => layer.stream_body(),
            false => layer,
        };
        let at = serve(reading(layer)).await;
        let guard = it.redlock.lock(ROCK).await.unwrap();
        let headers = "expect: 100-continue\r\ncontent-length: 5\r\n";
        let mut client = connected(at, headers).await;
        if streams {
            it.until_waiting(1).await;
            let early = timeout(MS(50), client.readable()).await;
            assert!(early.is_err(), "asked for the body before the lock");
            guard.release().await;
            assert!(read(&mut client).await.starts_with("HTTP/1.1 100"));
            client.write_all(b"whole").await.unwrap();
        } else {
            assert!(read(&mut client).await.starts_with("HTTP/1.1 100"));
            client.write_all(b"whole").await.unwrap();
            it.until_waiting(1).await;
            guard.release().await;
        }
        let response = read(&mut client).await;
        assert!(response.ends_with("5 bytes, locked: true"), "{response}");
    }
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_413_before_it_is_sent() {
    let it = Bed::new().await;
    let at = serve(reading(it.layer().body_limit(9))).await;
    let headers = "expect: 100-continue\r\ncontent-length: 10\r\n";
    let response = read(&mut connected(at, headers).await).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
}
