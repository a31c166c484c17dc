//! An Axum server that finishes its work before it stops.
//!
//! On SIGTERM the server stops accepting connections and answers the open requests. Then it waits for handlers
//! whose clients have gone away (they run on under their locks), delivers the owed releases, and prints how much
//! it abandoned.
//!
//! ```sh
//! cargo build -p redlock-examples --features graceful --bin graceful
//! target/debug/graceful & pid=$!
//! sleep 1
//! curl -m 1 -X POST localhost:3000/orders/7 # the client gives up, and the handler goes on
//! kill -TERM $pid; wait $pid
//! ```

use std::time::Duration;

use anyhow::Result;
use axum::{Router, extract::Path, routing::post};
use clap::Parser;
use redlock_axum::{LockLayer, LockLost, Locked, TaskTracker, key, path};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout_at},
};

/// Works on orders, and stops gracefully.
#[derive(Debug, Parser)]
struct Options {
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// How long an order takes.
    #[arg(long, default_value = "5s", value_parser = redlock_examples::duration)]
    work: Duration,
    /// How long to wait for requests and handlers after SIGTERM. The supervisor must wait for longer than this and
    /// `--releases` together before it sends SIGKILL (Kubernetes waits for 30 s).
    #[arg(long, default_value = "20s", value_parser = redlock_examples::duration)]
    patience: Duration,
    /// How long to wait for the releases after that.
    #[arg(long, default_value = "2s", value_parser = redlock_examples::duration)]
    releases: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("working, on {nodes}");

    let handlers = TaskTracker::new();
    let work = options.work;
    let router = Router::new()
        .route(
            "/orders/{order}",
            post(move |order, locked| handle(order, locked, work)),
        )
        .route_layer(
            LockLayer::new(redlock.clone(), key("order", path("order"))).tasks(handlers.clone()),
        );

    let asked_to_stop = redlock_examples::asked_to_stop()?;
    let listener = redlock_examples::listen(options.port).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = stopped.await; // The sender is dropped to stop the server, so an error is expected.
    });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        ended = &mut server => return Ok(ended??), // without a request to stop
        () = asked_to_stop => println!("stopping"),
    }
    let deadline = Instant::now() + options.patience;

    // 1. The server accepts no new connections, and answers those that are open.
    drop(stop);
    match timeout_at(deadline, &mut server).await {
        Ok(ended) => {
            ended??;
            println!("all connections are closed");
        }
        Err(_) => println!("abandoned connections: clients still wait for answers"),
    }

    // 2. Handlers without a client, which the server does not count.
    handlers.close();
    let _ = timeout_at(deadline, handlers.wait()).await; // the rest is counted below
    println!("abandoned handlers: {}", handlers.len());

    // 3. The releases, even those to nodes that are down and may be back in time.
    let report = redlock.shutdown(options.releases).await;
    println!("abandoned locks: {}", report.held);
    println!("abandoned releases: {}", report.abandoned);
    if report.held + report.abandoned > 0 {
        println!("their keys expire within a ttl");
    }
    Ok(())
}

/// Works on an order. By default the layer runs the handler to its end even if the client disconnects.
async fn handle(
    Path(order): Path<String>,
    locked: Locked,
    work: Duration,
) -> Result<String, LockLost> {
    println!("order {order}: begun");
    sleep(work).await;
    locked.ensure()?; // just before the step that counts
    println!("order {order}: done");
    Ok(format!("order {order} is done\n"))
}
