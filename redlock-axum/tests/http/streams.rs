//! A response over a real connection that goes on after its head.

use axum::extract::WebSocketUpgrade;
use futures::{SinkExt, StreamExt};
use redlock_axum::Locked;

use crate::support::{
    Bed, MS, event_route,
    server::{ROCK, serve},
};

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
