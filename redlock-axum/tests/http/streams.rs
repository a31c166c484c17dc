//! Responses over real connections that go on after their head, with the lock or without it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, OnceLock},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::WebSocketUpgrade,
};
use futures::{SinkExt, Stream, StreamExt, stream};
use futures_channel::mpsc;
use redlock_axum::{CompositeKey, LockLayer, Locked, OnLost};
use tokio::time::timeout;

use crate::support::{
    When, event_route,
    server::{Fixture, LIMIT, MS, ROCK, VERSIONS, answer, send, serve, until},
};

#[tokio::test]
async fn a_body_that_is_not_sent_does_not_keep_the_lock() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let at = it.serve(it.layer().hold_until_body_end(3 * LIMIT)).await;
        let caller = send(&client(), at);
        it.work.until_entered(1).await;
        caller.abort();
        it.work.until_left(1).await;
        assert!(it.is_locked(ROCK));
        it.work.let_end();
        it.until_free(ROCK).await;
        assert_eq!((it.work.dropped(), it.work.ended()), (0, 1));
    }
}

/// The chunks that the test sends, for the body of one response.
#[derive(Clone)]
struct Chunks(Arc<Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>>);

impl Chunks {
    fn take(&self) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
        let chunks = self.0.lock().unwrap().take();
        chunks.expect("one request").map(Ok)
    }
}

fn body() -> (mpsc::UnboundedSender<Bytes>, Chunks) {
    let (chunks, body) = mpsc::unbounded();
    (chunks, Chunks(Arc::new(Mutex::new(Some(body)))))
}

/// A route whose body consists of the chunks that the test sends.
fn streaming(layer: LockLayer<CompositeKey>) -> (Router, mpsc::UnboundedSender<Bytes>) {
    let (chunks, body) = body();
    let handler = async move || Body::from_stream(body.take());
    (event_route(handler, layer), chunks)
}

#[tokio::test]
async fn a_stream_holds_its_lock_until_it_has_ended() {
    for client in VERSIONS {
        for cancels in [false, true] {
            let it = Fixture::new().await;
            let layer = it.layer().hold_until_body_end(3 * LIMIT);
            let layer = layer.when(cancels, LockLayer::cancel_on_disconnect);
            let (app, chunks) = streaming(layer);
            let at = serve(app).await;
            let mut response = answer(send(&client(), at)).await;
            for chunk in ["one", "two"] {
                assert!(it.is_locked(ROCK));
                chunks.unbounded_send(chunk.into()).unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), chunk);
            }
            assert!(it.is_locked(ROCK));
            drop(chunks);
            let rest = response.chunk().await.unwrap();
            // HTTP/2 may end a stream with an empty chunk.
            assert!(rest.is_none_or(|chunk| chunk.is_empty()));
            it.until_free(ROCK).await;
        }
    }
}

#[tokio::test]
async fn a_stream_holds_its_lock_until_its_reader_is_gone() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let (app, chunks) = streaming(it.layer().hold_until_body_end(3 * LIMIT));
        let at = serve(app).await;
        let mut response = answer(send(&client(), at)).await;
        chunks.unbounded_send("one".into()).unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
        assert!(it.is_locked(ROCK));
        drop(response);
        it.until_free(ROCK).await;
        assert!(chunks.is_closed());
    }
}

#[tokio::test]
async fn a_reader_that_stops_reading_does_not_keep_the_lock() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let handler = async || {
            // This exceeds all buffers on the way, so the client never reads the rest.
            let chunk = Bytes::from(vec![0; 32 << 20]);
            Body::from_stream(stream::repeat(Ok::<_, Infallible>(chunk)))
        };
        let layer = it.layer().hold_until_body_end(MS(1000));
        let at = serve(event_route(handler, layer)).await;
        let mut response = answer(send(&client(), at)).await;
        assert!(it.is_locked(ROCK));
        it.until_free(ROCK).await;
        let chunk = response.chunk().await.unwrap();
        assert!(chunk.is_some(), "the body is still being sent");
    }
}

#[tokio::test]
async fn a_stream_whose_lock_is_lost_goes_on_or_is_cut_off() {
    for on_lost in [OnLost::Signal, OnLost::Fail, OnLost::Cancel] {
        for client in VERSIONS {
            for cancels in [false, true] {
                let it = Fixture::new().await;
                let layer = it.layer().hold_until_body_end(3 * LIMIT).on_lost(on_lost);
                let layer = layer.when(cancels, LockLayer::cancel_on_disconnect);
                let (chunks, body) = body();
                let hold = Arc::new(OnceLock::new());
                let handler = {
                    let hold = Arc::clone(&hold);
                    async move |locked: Locked| {
                        hold.set((*locked).clone()).expect("one request");
                        Body::from_stream(body.take())
                    }
                };
                let at = serve(event_route(handler, layer)).await;
                let mut response = answer(send(&client(), at)).await;
                chunks.unbounded_send("one".into()).unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), "one");

                let nodes = it.nodes.nodes().iter();
                nodes.for_each(|node| assert!(node.remove(ROCK)));
                hold.get().unwrap().extend().await.unwrap_err();
                if on_lost == OnLost::Signal {
                    chunks.unbounded_send("two".into()).unwrap();
                    assert_eq!(response.chunk().await.unwrap().unwrap(), "two");
                } else {
                    let cut_off = timeout(LIMIT, response.chunk()).await.unwrap();
                    assert!(cut_off.is_err(), "a body that looks whole: {cut_off:?}");
                    until("it is dropped", || chunks.is_closed()).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_without_the_lock_by_default() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let (app, chunks) = streaming(it.layer());
        let at = serve(app).await;
        let mut response = answer(send(&client(), at)).await;
        it.until_free(ROCK).await;
        chunks.unbounded_send("one".into()).unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
    }
}

#[tokio::test]
async fn a_stream_keeps_the_lock_that_it_took_until_it_is_dropped() {
    for client in VERSIONS {
        for ends in [true, false] {
            let it = Fixture::new().await;
            let (chunks, body) = body();
            let handler = async move |locked: Locked| {
                let guard = locked.into_owned();
                Body::from_stream(body.take().inspect(move |_| {
                    let _held = &guard;
                }))
            };
            let at = serve(event_route(handler, it.layer())).await;
            let mut response = answer(send(&client(), at)).await;
            for chunk in ["one", "two"] {
                chunks.unbounded_send(chunk.into()).unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), chunk);
                assert!(it.is_locked(ROCK));
            }
            if ends {
                drop(chunks);
                while response.chunk().await.unwrap().is_some() {}
            } else {
                drop(response);
            }
            it.until_free(ROCK).await;
        }
    }
}

#[tokio::test]
async fn a_websocket_keeps_the_lock_that_it_took_until_it_is_closed() {
    let it = Fixture::new().await;
    let handler = async |upgrade: WebSocketUpgrade, locked: Locked| {
        let guard = locked.into_owned();
        upgrade.on_upgrade(async move |mut socket| {
            let guard = guard;
            while let Some(Ok(message)) = socket.recv().await {
                let _ = socket.send(message).await;
            }
            drop(guard);
        })
    };
    let layer = it.layer().all_methods().wait(MS(50));
    let at = serve(event_route(handler, layer)).await;
    let url = format!("ws://{at}/events/rock");
    for hangs_up in [false, true] {
        let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
        for text in ["one", "two"] {
            socket.send(text.into()).await.unwrap();
            let echo = socket.next().await.unwrap().unwrap();
            assert_eq!(echo.to_text().unwrap(), text);
            assert!(it.is_locked(ROCK));
        }
        let refused = tokio_tungstenite::connect_async(&url).await.unwrap_err();
        let tokio_tungstenite::tungstenite::Error::Http(response) = refused else {
            panic!("{refused}");
        };
        assert_eq!(response.status(), 423);
        assert!(it.is_locked(ROCK));
        if !hangs_up {
            socket.close(None).await.unwrap();
        }
        drop(socket);
        it.until_free(ROCK).await;
    }
}
