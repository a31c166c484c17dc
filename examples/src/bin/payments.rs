//! An Axum server that charges once for each `Idempotency-Key`, however often the request comes.
//!
//! A client without an answer sends its request again, perhaps while the first one is still at work. The lock
//! makes the second request wait, and the store has the result of the first one.
//!
//! ```sh
//! cargo run -p redlock-examples --features payments --bin payments
//! for i in 1 2 3; do
//!     curl -X POST localhost:3000/payments --json '{"amount": 5}' -H 'Idempotency-Key: "8e03"' &
//! done
//! ```

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use clap::Parser;
use redlock_axum::{LockLayer, LockLost, Locked, header, key};
use redlock_examples::lock;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// Takes payments, each of them once.
#[derive(Debug, Parser)]
struct Options {
    /// The port to listen on; 0 for any that is free.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// How long a charge takes.
    #[arg(long, default_value = "50ms", value_parser = redlock_examples::duration)]
    charge: Duration,
}

#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

#[derive(Clone, Serialize)]
struct Receipt {
    charge: u64,
    amount: u64,
}

/// The earlier results. Several processes would share them in a table with a unique key, which the transaction
/// of the payment writes.
struct Ledger {
    receipts: Mutex<HashMap<Vec<u8>, Receipt>>,
    charges: AtomicU64,
    charge: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("charging once, on {nodes}");

    let ledger = Arc::new(Ledger {
        receipts: Mutex::default(),
        charges: AtomicU64::new(0),
        charge: options.charge,
    });
    // A client may quote its key or not: both are the same payment. Clients choose their keys themselves. If the server
    // knows the client, add the client to the key with `key("payment", [typed(..), chosen])`, so that the keys of two
    // clients never collide.
    let chosen = header("idempotency-key").map(|key| key.trim_matches('"').to_owned());
    let router = Router::new()
        .route("/payments", post(pay))
        .route_layer(LockLayer::new(redlock.clone(), key("payment", chosen)))
        .route("/charges", get(charges))
        .with_state(ledger);

    let stop = redlock_examples::asked_to_stop()?;
    let listener = redlock_examples::listen(options.port).await?;
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    redlock.shutdown(None).await; // delivers the last releases
    Ok(())
}

/// Charges, or repeats the earlier answer. If the client disconnects, the layer runs the handler to its end, and
/// the client's next attempt finds the receipt.
async fn pay(
    State(ledger): State<Arc<Ledger>>,
    locked: Locked,
    Json(payment): Json<Payment>,
) -> Result<Response, LockLost> {
    // The layer has read the header, so the receipt is looked up by the key that is locked.
    let key = locked.key().as_bytes();
    let earlier = lock(&ledger.receipts).get(key).cloned();
    if let Some(receipt) = earlier {
        return Ok(if receipt.amount == payment.amount {
            (StatusCode::OK, Json(receipt)).into_response()
        } else {
            let problem = "this Idempotency-Key was used for another payment\n";
            (StatusCode::UNPROCESSABLE_ENTITY, problem).into_response()
        });
    }
    // The check comes just before the step that must not happen twice. If the payment provider takes a key, pass
    // this key on: a process that ends between the charge and the receipt leaves no other trace.
    locked.ensure()?;
    let receipt = ledger.charge(&payment).await;
    lock(&ledger.receipts).insert(key.to_owned(), receipt.clone());
    Ok((StatusCode::CREATED, Json(receipt)).into_response())
}

/// Returns the number of charges. A GET needs no lock.
async fn charges(State(ledger): State<Arc<Ledger>>) -> Json<u64> {
    Json(ledger.charges.load(SeqCst))
}

impl Ledger {
    /// Moves the money, which takes a while.
    async fn charge(&self, payment: &Payment) -> Receipt {
        sleep(self.charge).await;
        Receipt {
            charge: self.charges.fetch_add(1, SeqCst) + 1,
            amount: payment.amount,
        }
    }
}
