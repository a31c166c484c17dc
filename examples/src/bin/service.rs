//! A whole service to copy: nodes from one variable, a lock on a route, health checks, a log, and a bounded end.
//!
//! ```sh
//! examples/five-nodes cargo run -p redlock-examples --features service --bin service # then, in another terminal:
//! curl -i localhost:3000/readyz                  # 503 for the first ten seconds, because the servers are new
//! curl -i -X POST localhost:3000/orders/7/payment
//! ```

use std::{env, time::Duration};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use redlock_axum::{LockLayer, LockLost, Locked, TaskTracker, key, path};
use redlock_tokio::Redlock;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::timeout,
};

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init(); // INFO, WARN and ERROR

    let mut terminated = signal(SignalKind::terminate())?;
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(&address).await.context(address)?;
    println!("listening on http://{}", listener.local_addr()?);

    let nodes = env::var("REDLOCK_NODES")
        .context("set REDLOCK_NODES, for example to redis://a,redis://b,redis://c")?;
    // Fails if the configuration is wrong. Nodes that are down are no error.
    let redlock = Redlock::builder().nodes(&nodes).prefix("lock:").build();
    let redlock = redlock.await.context("REDLOCK_NODES")?;

    let tasks = TaskTracker::new();
    let order = key("order", path("order").parse::<u64>()); // 7 and 07 are one order
    let lock = LockLayer::new(redlock.clone(), order).tasks(tasks.clone());
    lock.check()?;
    let router = Router::new()
        .route("/orders/{order}/payment", post(pay))
        .route_layer(lock) // for the routes above
        .route("/livez", get(async || "alive")) // does not look at the locks: a restart would mend nothing
        .route("/readyz", get(readyz))
        .with_state(redlock.clone());

    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = stopped.await; // an error, since the sender is dropped
    });
    let server = tokio::spawn(server.into_future());

    // Only for the log. Without a quorum the layer answers 503, and the service goes on.
    let locks = redlock.clone();
    tokio::spawn(async move {
        match locks.ready(Duration::from_secs(20)).await {
            Ok(()) => tracing::info!("the locks are ready"),
            Err(error) => tracing::warn!(%error, "the service runs, but no lock is available yet"),
        }
    });

    // A supervisor waits for longer than the 20 s and 5 s here before it sends SIGKILL.
    terminated.recv().await;
    drop(stop);
    let end = async {
        let _ = server.await; // the open requests
        tasks.close();
        tasks.wait().await; // the handlers whose clients have gone
    };
    if timeout(Duration::from_secs(20), end).await.is_err() {
        tracing::warn!("requests are abandoned, and their locks expire");
    }
    redlock.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Runs for one request for an order at a time, in all processes.
async fn pay(Path(order): Path<u64>, locked: Locked) -> Result<String, LockLost> {
    // .. read the order, and ask for its price ..
    locked.ensure()?; // still held, just before the step that counts
    // .. charge the card, with the order as the idempotency key ..
    Ok(format!("order {order} is paid\n"))
}

/// Leave this route out if most of the service works without locks.
async fn readyz(State(redlock): State<Redlock>) -> Result<(), (StatusCode, String)> {
    let ready = redlock.ready(Duration::ZERO).await; // asks no node
    ready.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}
