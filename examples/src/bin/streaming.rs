//! An Axum route whose body is a slow stream. The lock is held until the last row is sent, so no other request
//! changes the table during an export.
//!
//! A long export must not exclude others for ever. After `--at-most` the lock is released, and the export is
//! cut off.
//!
//! ```sh
//! cargo run -p redlock-examples --features streaming --bin streaming # then, in two other terminals:
//! curl -N localhost:3000/tables/users
//! curl -X POST localhost:3000/tables/users # answers when the export is done
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    routing::get,
};
use clap::Parser;
use futures::stream;
use redlock_axum::{LockLayer, LockLost, Locked, key, path};
use tokio::time::sleep;

/// Exports tables that do not change during the export.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// How many rows each table has at the start.
    #[arg(long, default_value_t = 10)]
    rows: usize,
    /// How long it takes to read a row.
    #[arg(long, default_value = "200ms", value_parser = redlock_examples::duration)]
    row: Duration,
    /// How long an export may hold the lock.
    #[arg(long, default_value = "10s", value_parser = redlock_examples::duration)]
    at_most: Duration,
}

/// The numbers of rows of all tables. A table that is not in the map has as many as at the start.
#[derive(Clone)]
struct Tables {
    rows: Arc<Mutex<HashMap<String, usize>>>,
    options: Options,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("exporting, on {nodes}");

    let layer = LockLayer::new(redlock.clone(), key("table", path("table")))
        .all_methods() // by default the layer does not lock for a GET
        .hold_until_body_end(options.at_most);
    let router = Router::new()
        .route("/tables/{table}", get(export).post(insert))
        .route_layer(layer)
        .with_state(Tables {
            rows: Arc::default(),
            options: options.clone(),
        });

    let stop = redlock_examples::asked_to_stop()?;
    let listener = redlock_examples::listen(options.port).await?;
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    redlock.shutdown(None).await; // delivers the last releases
    Ok(())
}

/// Sends the rows one by one. The handler ends when it returns the stream, and the layer holds the lock until
/// the end of the stream.
async fn export(State(tables): State<Tables>, Path(table): Path<String>, locked: Locked) -> Body {
    Body::from_stream(stream::try_unfold(0, move |row| {
        let (tables, table, locked) = (tables.clone(), table.clone(), locked.clone());
        async move {
            if row == tables.rows_of(&table) {
                return Ok::<_, LockLost>(None);
            }
            sleep(tables.options.row).await;
            // The status is sent already. An error cuts the body off, and so the client notices that the table
            // is incomplete.
            locked.ensure()?;
            Ok(Some((format!("{table}: row {row}\n"), row + 1)))
        }
    }))
}

/// Adds a row. Without the lock, an export in progress would contain the new row.
async fn insert(State(tables): State<Tables>, Path(table): Path<String>) -> String {
    let row = tables.rows_of(&table);
    redlock_examples::lock(&tables.rows).insert(table.clone(), row + 1);
    format!("{table}: added row {row}\n")
}

impl Tables {
    fn rows_of(&self, table: &str) -> usize {
        let rows = redlock_examples::lock(&self.rows);
        rows.get(table).copied().unwrap_or(self.options.rows)
    }
}
