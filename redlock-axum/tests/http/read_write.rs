//! Requests that need a lock, and requests that read or write.

use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode},
};
use redlock_axum::{LockLayer, LockRequest, Locked, RequestKey};
use redlock_tokio::errors::OptionsError;

use crate::support::{
    Bed, MS, assert_detail, event_route, may_retry, post, problem, request, rock, send, text,
};

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
async fn a_request_that_is_kept_out_is_told_by_whom() {
    let it = Bed::new().await;
    let app = it.app(it.layer().read_write().wait(MS(500)));
    let get = async || send(&app, rock(Method::GET)).await;
    let kept_out = async |response, by: &str| {
        let body = problem(response, 423, "locked").await;
        assert!(may_retry(&body), "{body}");
        assert_detail(&body, by);
    };
    let reader = it.nodes.contend_as_reader("event:rock").await.unwrap();
    text(get().await).await;
    kept_out(post(&app, "/events/rock").await, "are reading").await;
    let exclusive = it.app(it.layer().all_methods().wait(MS(50)));
    let plain = send(&exclusive, rock(Method::GET)).await;
    kept_out(plain, "is working on").await;
    reader.release().await;

    let writer = it.nodes.contend("event:rock").await.unwrap();
    kept_out(get().await, "is changing").await;
    kept_out(post(&app, "/events/rock").await, "are reading").await;
    writer.release().await;
    text(get().await).await;
    text(post(&app, "/events/rock").await).await;
    assert_eq!(it.ran(), 3);
    let conflict = it.layer().contended_status(StatusCode::CONFLICT);
    let app = it.app(conflict.wait(MS(0)).read_write());
    let _writer = it.redlock.rw_lock("event:rock").try_write().await.unwrap();
    let response = send(&app, rock(Method::GET)).await;
    problem(response, 409, "locked").await;
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
async fn permits_of_readers_are_a_500() {
    let it = Bed::new().await;
    let permits_first = it.layer().permits(2).read_write();
    let permits_last = it.layer().read_write().permits(2);
    for layer in [permits_first, permits_last] {
        assert_eq!(layer.check(), Err(OptionsError::PermitsAndReaders));
        let response = post(&it.app(layer), "/events/rock").await;
        problem(response, 500, "misconfigured").await;
    }
}
