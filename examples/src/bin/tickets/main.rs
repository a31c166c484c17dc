//! A box office: people pick seats of an event on a live page, and each seat is sold once, by any number of
//! processes.
//!
//! A sale reads the seat, waits for the payment and writes the seat. This is not atomic on purpose: a `LockLayer`
//! on the route makes it safe. Buyers that come during a payment wait in line, and the page shows them in all
//! processes. Two buttons send twenty buyers to one seat, with the lock and without it.
//!
//! ```sh
//! # One process, everything embedded; then open http://localhost:3000 in two windows.
//! cargo run -p redlock-examples --features tickets --bin tickets
//!
//! # Several processes: lock nodes, and a store that they share.
//! REDLOCK_NODES=redis://a,redis://b,redis://c \
//!     cargo run -p redlock-examples --features tickets --bin tickets -- --port 3001 --data redis://store
//!
//! # Without the lock:
//! cargo run -p redlock-examples --features tickets --bin tickets -- --no-lock
//! ```
//!
//! The modules, from the outside in: [`routes`] has the pages and their state, [`seat`] sells seats, [`request`]
//! checks requests, and [`refusal`] has the errors. [`rush`] is the demonstration. [`office`] and [`event`] hold
//! the state: [`mod@line`] the people in line, [`store`] the sales. [`snapshot`] puts it together with the
//! states of the lock nodes, and [`live`] sends it to open pages.

mod event;
mod line;
mod live;
mod office;
mod refusal;
mod request;
mod routes;
mod rush;
mod seat;
mod snapshot;
mod store;
mod turn;

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

/// How long connections may stay open after the last answer.
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
    /// How long a buyer waits for a seat while another buyer pays.
    #[arg(long, default_value = "10s", value_parser = redlock_examples::duration)]
    wait: Duration,
    /// The URL of a Redis server for the sales, if several processes share them. Not one of the lock nodes.
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
    // Buyers in line are still served. Idle connections are not waited for.
    let last_answer = terms.wait.saturating_add(terms.payment);
    let patience = stop.then(move |()| sleep(last_answer.saturating_add(PATIENCE)));
    tokio::select! {
        ended = server => ended?,
        () = patience => tracing::warn!("some connections are still open"),
    }
    handlers.close();
    handlers.wait().await; // sales whose buyers have gone away
    redlock.shutdown(None).await; // delivers the last releases
    Ok(())
}
