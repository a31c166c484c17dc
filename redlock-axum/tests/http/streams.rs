//! Responses over real connections that go on after their head.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::WebSocketUpgrade,
};
use futures::{SinkExt, StreamExt};
use futures_channel::mpsc;
use redlock_axum::{CompositeKey, LockLayer, Locked};

use crate::support::{
    Bed, MS, event_route,
    server::{LIMIT, ROCK, VERSIONS, send, serve},
};

#[tokio::test]
async fn a_stream_holds_its_lock_until_it_has_ended_or_its_reader_is_gone() {
    for client in VERSIONS {
        for ends in [true, false] {
            let it = Bed::new().await;
            let (app, chunks) = streaming(it.layer().hold_until_body_end(3 * LIMIT));
            let at = serve(app).await;
            let mut response = send(&client(), at).await.unwrap();
            for chunk in ["one", "two"] {
                chunks.unbounded_send(chunk.into()).unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), chunk);
                assert!(it.nodes.is_locked(ROCK));
            }
            if ends {
                drop(chunks);
                let rest = response.chunk().await.unwrap();
                // HTTP/2 may end a stream with an empty chunk.
                assert!(rest.is_none_or(|chunk| chunk.is_empty()));
            } else {
                drop(response);
            }
            it.until_free(ROCK).await;
        }
    }
}

#[tokio::test]
async fn a_websocket_keeps_the_lock_that_it_took_until_it_is_closed() {
    let it = Bed::new().await;
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
            assert!(it.nodes.is_locked(ROCK));
        }
        let refused = tokio_tungstenite::connect_async(&url).await.unwrap_err();
        let tokio_tungstenite::tungstenite::Error::Http(response) = refused else {
            panic!("{refused}");
        };
        assert_eq!(response.status(), 423);
        assert!(it.nodes.is_locked(ROCK));
        if !hangs_up {
            socket.close(None).await.unwrap();
        }
        drop(socket);
        it.until_free(ROCK).await;
    }
}

/// A route whose body consists of the chunks that the test sends.
fn streaming(layer: LockLayer<CompositeKey>) -> (Router, mpsc::UnboundedSender<Bytes>) {
    let (chunks, body) = mpsc::unbounded();
    let body = Arc::new(Mutex::new(Some(body)));
    let handler = async move || {
        let body = body.lock().unwrap().take().expect("one request");
        Body::from_stream(body.map(Ok::<_, Infallible>))
    };
    (event_route(handler, layer), chunks)
}
