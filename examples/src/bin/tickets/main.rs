//! A box office: people pick seats of an event on a page that is live, and each seat is sold once, by
//! any number of processes.
//!
//! A sale reads the seat, waits for the payment and writes the seat, which is not atomic on purpose: a
//! `LockLayer` on the route makes it safe. Who comes while somebody pays waits in line, and the page
//! shows who that is, in all processes. Two buttons send twenty buyers at one seat, with the lock and without it.
//!
//! ```sh
//! # One process, everything embedded; then open http://localhost:3000 in two windows.
//! cargo run -p redlock-examples --features tickets --bin tickets
//!
//! # Several processes: lock nodes, and a store that they share.
//! REDLOCK_NODES=redis://a,redis://b,redis://c \
//!     cargo run -p redlock-examples --features tickets --bin tickets -- --port 3001 --data redis://store
//!
//! # What happens without the lock:
//! cargo run -p redlock-examples --features tickets --bin tickets -- --no-lock
//! ```
//!
//! From the outside in: [`routes`] is what clients see, [`request`] what they may say and [`refusal`]
//! what they are told if it goes wrong; [`rush`] is the demonstration; [`office`] and [`event`] are the
//! state, [`mod@line`] is who waits, [`store`] what is sold, [`light`] how the lock nodes are, and [`live`]
//! keeps all of it up to date for those who look on.

mod event;
mod light;
mod line;
mod live;
mod office;
mod page;
mod refusal;
mod request;
mod routes;
mod rush;
mod snapshot;
mod store;

use std::{process, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use futures::FutureExt;
use redlock_axum::TaskTracker;
use tokio::time::sleep;

use crate::{
    event::{EventName, Terms},
    office::BoxOffice,
    store::Store,
};

/// How long open connections may outlast the last answer that is due.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sells seats, each of them once across all processes.
#[derive(Debug, Parser)]
struct Options {
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// The events, with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "rock,jazz")]
    events: Vec<EventName>,
    /// How many seats each event has.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    seats: u32,
    /// How long a payment takes.
    #[arg(long, default_value = "500ms", value_parser = redlock_examples::duration)]
    payment: Duration,
    /// How long people wait for a seat that somebody else pays for.
    #[arg(long, default_value = "10s", value_parser = redlock_examples::duration)]
    wait: Duration,
    /// The Redis that keeps what is sold, if several processes share it. Not one of the lock nodes.
    #[arg(long)]
    data: Option<String>,
    /// Sells without the lock, and so sells a seat twice.
    #[arg(long)]
    no_lock: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    let store = Store::open(options.data.as_deref())?;
    let terms = Terms {
        seats: options.seats,
        payment: options.payment,
        wait: options.wait,
        locked: !options.no_lock,
    };
    let events = event::open(options.events, terms).context("--events")?;
    if terms.locked {
        println!("selling, locking on {nodes}");
    } else {
        println!("selling without a lock");
    }

    let handlers = TaskTracker::new();
    let stop = redlock_examples::asked_to_stop()?.boxed().shared();
    let listener = redlock_examples::listen(options.port).await?;
    let address = listener.local_addr().context("the listener's address")?;
    let office = Arc::new(BoxOffice {
        events,
        demonstration: rush::halls(),
        store,
        redlock: redlock.clone(),
        handlers: handlers.clone(),
        server: format!("process {} on port {}", process::id(), address.port()),
        closing: stop.clone(),
    });
    live::start(&office);

    let server = axum::serve(listener, routes::router(office, terms))
        .with_graceful_shutdown(stop.clone())
        .into_future();
    // Who waits in line is still served; a connection that asks for nothing is not waited for.
    let last_answer = terms.wait.saturating_add(terms.payment);
    let patience = stop.then(move |()| sleep(last_answer.saturating_add(PATIENCE)));
    tokio::select! {
        ended = server => ended?,
        () = patience => tracing::warn!("some connections are still open"),
    }
    handlers.close();
    handlers.wait().await; // sales whose buyers have gone away
    redlock.shutdown().await; // delivers the last releases
    Ok(())
}
