//! Requests that need a lock, and requests that read or write.

use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode},
};
use redlock_axum::{LockLayer, LockRequest, Locked, RequestKey};
use redlock_tokio::errors::OptionsError;

use crate::support::{Bed, event_route, request, rock, send};

/// A route whose handler says with its status how it is locked: a response to a HEAD or a CONNECT has no body.
fn app<K: RequestKey>(layer: LockLayer<K>) -> Router {
    let handler = async |locked: Option<Locked>| match locked {
        Some(locked) if locked.is_reader() => StatusCode::ACCEPTED,
        Some(_) => StatusCode::CREATED,
        None => StatusCode::NO_CONTENT,
    };
    event_route(handler, layer)
}

const READS: StatusCode = StatusCode::ACCEPTED;
const WRITES: StatusCode = StatusCode::CREATED;
const PASSES: StatusCode = StatusCode::NO_CONTENT;

async fn status(app: &Router, method: Method) -> StatusCode {
    send(app, rock(method)).await.status()
}

/// The handshake of a WebSocket is a GET over HTTP/1 and a CONNECT over HTTP/2. A HEAD runs the handler of the GET.
#[tokio::test(start_paused = true)]
async fn the_method_decides_whether_a_request_has_a_lock_and_whether_it_reads() {
    let it = Bed::new().await;
    let these = |methods: &[Method]| it.layer().methods(methods.to_vec());
    let gets_and_posts = these(&[Method::GET, Method::POST]);
    let kinds = [
        &["GET", "HEAD", "CONNECT"][..],
        &["OPTIONS", "TRACE"],
        &["POST"],
        &["PUT", "PATCH", "DELETE", "SETTLE"],
    ];
    for (layer, expected) in [
        (it.layer(), [PASSES, PASSES, WRITES, WRITES]),
        (it.layer().all_methods(), [WRITES; 4]),
        (it.layer().read_write(), [READS, READS, WRITES, WRITES]),
        (gets_and_posts.clone(), [WRITES, PASSES, WRITES, PASSES]),
        (gets_and_posts.read_write(), [READS, PASSES, WRITES, PASSES]),
        (these(&[Method::POST]), [PASSES, PASSES, WRITES, PASSES]),
        (these(&[Method::HEAD]), [WRITES, PASSES, PASSES, PASSES]),
        (these(&[Method::CONNECT]), [WRITES, PASSES, PASSES, PASSES]),
    ] {
        let case = format!("{layer:?}");
        let app = app(layer);
        for (methods, expected) in kinds.into_iter().zip(expected) {
            for method in methods {
                let seen = status(&app, method.parse().unwrap()).await;
                assert_eq!(seen, expected, "{method}, {case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_closure_decides_for_its_request() {
    let it = Bed::new().await;
    let closure = |request: &Request| {
        let wanted = LockRequest::new("event:rock");
        match request.uri().query() {
            Some("search") => wanted.read(),
            Some("mark") => wanted.write(),
            _ => wanted,
        }
    };
    let shared = app(LockLayer::new(it.redlock.clone(), closure).read_write());
    for (method, query, expected) in [
        (Method::POST, "", WRITES),
        (Method::POST, "search", READS),
        (Method::GET, "", READS),
        (Method::GET, "mark", WRITES),
    ] {
        let uri = format!("/events/rock?{query}");
        let response = send(&shared, request(method, &uri)).await;
        assert_eq!(response.status(), expected, "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_with_permits_and_readers_fails_its_check() {
    let layer = Bed::new().await.layer().permits(2).read_write();
    assert_eq!(layer.check(), Err(OptionsError::PermitsAndReaders));
}
