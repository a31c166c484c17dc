//! An Axum server that sells seats: it reads the stock, waits, and writes the stock back, which is
//! not atomic on purpose. A `LockLayer` on the route makes it safe, in any number of processes.
//!
//! ```sh
//! # One process, everything embedded:
//! cargo run -p redlock-examples --bin tickets
//! curl -X POST localhost:3000/events/rock/tickets
//!
//! # Several processes: lock nodes, and a store that they share.
//! REDLOCK_NODES=redis://a,redis://b,redis://c \
//!     cargo run -p redlock-examples --bin tickets -- --port 3001 --data redis://store
//!
//! # What happens without the lock:
//! cargo run -p redlock-examples --bin tickets -- --no-lock
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use clap::Parser;
use deadpool_redis::{Pool, Runtime, redis::AsyncCommands};
use redlock_axum::{LockLayer, LockLost, Locked, path};
use serde::Serialize;
use tokio::time::sleep;

/// Sells seats, one at a time across all processes.
#[derive(Debug, Parser)]
struct Options {
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// How many seats each event has.
    #[arg(long, default_value_t = 100)]
    seats: u32,
    /// The Redis that keeps the stock, if several processes share it. Not one of the lock nodes.
    #[arg(long)]
    data: Option<String>,
    /// Sells without the lock, and so sells too much.
    #[arg(long)]
    no_lock: bool,
}

#[derive(Clone)]
struct App {
    stock: Arc<Stock>,
    seats: u32,
}

#[derive(Debug, Serialize)]
struct Ticket {
    event: String,
    seat: u32,
}

#[derive(Debug, Serialize)]
struct Left {
    event: String,
    seats_left: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    let app = App {
        stock: Arc::new(Stock::open(options.data.as_deref())?),
        seats: options.seats,
    };

    let mut sales = Router::new().route("/events/{event}/tickets", post(buy));
    if !options.no_lock {
        // For a popular event there is a long line, and it moves fast.
        let layer = LockLayer::new(redlock.clone(), path("event"))
            .wait(Duration::from_secs(10))
            .max_waiters(1000, 10_000);
        sales = sales.route_layer(layer);
    }
    let router = Router::new()
        .route("/events/{event}", get(left))
        .merge(sales)
        .with_state(app);

    let lock = if options.no_lock {
        "without a lock".to_owned()
    } else {
        format!("locking on {nodes}")
    };
    println!("selling {lock}");
    let stop = redlock_examples::asked_to_stop()?;
    let listener = redlock_examples::listen(options.port).await?;
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    redlock.shutdown().await; // delivers the last releases
    Ok(())
}

/// Sells one seat. The lock makes the three steps one.
async fn buy(
    State(app): State<App>,
    Path(event): Path<String>,
    locked: Option<Locked>,
) -> Result<Response, Failure> {
    let left = app.stock.read(&event).await?.unwrap_or(app.seats);
    if left == 0 {
        return Ok((StatusCode::CONFLICT, "sold out\n").into_response());
    }
    // The payment takes its time, and meanwhile another buyer may read the same stock.
    sleep(Duration::from_millis(2)).await;
    if let Some(locked) = locked {
        locked.ensure()?;
    }
    app.stock.write(&event, left - 1).await?;
    let ticket = Ticket { event, seat: left };
    Ok((StatusCode::CREATED, Json(ticket)).into_response())
}

/// Says how many seats are left. A GET needs no lock.
async fn left(State(app): State<App>, Path(event): Path<String>) -> Result<Json<Left>, Failure> {
    let seats_left = app.stock.read(&event).await?.unwrap_or(app.seats);
    Ok(Json(Left { event, seats_left }))
}

/// Where the number of seats left is kept: in this process, or in a Redis that processes share.
enum Stock {
    Embedded(Mutex<HashMap<String, u32>>),
    Redis(Pool),
}

impl Stock {
    fn open(url: Option<&str>) -> Result<Self> {
        let Some(url) = url else {
            return Ok(Self::Embedded(Mutex::default()));
        };
        let pool = deadpool_redis::Config::from_url(url)
            .create_pool(Some(Runtime::Tokio1))
            .context("--data is not a Redis URL")?;
        Ok(Self::Redis(pool))
    }

    async fn read(&self, event: &str) -> Result<Option<u32>> {
        match self {
            Self::Embedded(stock) => {
                let stock = stock.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(stock.get(event).copied())
            }
            Self::Redis(pool) => Ok(pool.get().await?.get(stock_key(event)).await?),
        }
    }

    async fn write(&self, event: &str, left: u32) -> Result<()> {
        match self {
            Self::Embedded(stock) => {
                let mut stock = stock.lock().unwrap_or_else(PoisonError::into_inner);
                stock.insert(event.to_owned(), left);
                Ok(())
            }
            Self::Redis(pool) => Ok(pool.get().await?.set(stock_key(event), left).await?),
        }
    }
}

fn stock_key(event: &str) -> String {
    format!("tickets:stock:{event}")
}

/// Why a request could not be handled.
enum Failure {
    Lost(LockLost),
    Store(anyhow::Error),
}

impl From<LockLost> for Failure {
    fn from(lost: LockLost) -> Self {
        Self::Lost(lost)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Lost(lost) => lost.into_response(),
            Self::Store(error) => {
                eprintln!("the store failed: {error:#}");
                (StatusCode::INTERNAL_SERVER_ERROR, "the store failed\n").into_response()
            }
        }
    }
}
