//! An Axum server that charges once for each `Idempotency-Key`, however often and however many times
//! at once the request comes.
//!
//! A client that got no answer sends its request again, perhaps while the first is still at work. The
//! lock makes the second wait, and the store gives it the result of the first.
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
        Arc, Mutex, MutexGuard, PoisonError,
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
use redlock_axum::{LockLayer, LockLost, Locked, idempotency_key, key};
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

/// The earlier results. Several processes would share them: a table with a unique key, written in the
/// transaction that the payment belongs to.
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
    // Clients choose their keys themselves. Where a client is known, put it into the key as well, with
    // `key("payment", [extension(..), idempotency_key()])`, so that two clients never mean the same payment.
    let router = Router::new()
        .route("/payments", post(pay))
        .route_layer(LockLayer::new(
            redlock.clone(),
            key("payment", idempotency_key()),
        ))
        .route("/charges", get(charges))
        .with_state(ledger);

    let stop = redlock_examples::asked_to_stop()?;
    let listener = redlock_examples::listen(options.port).await?;
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    redlock.shutdown().await; // delivers the last releases
    Ok(())
}

/// Charges, or answers what it answered before. If the client goes away meanwhile, the layer lets this
/// run to its end: the client's next attempt finds the receipt.
async fn pay(
    State(ledger): State<Arc<Ledger>>,
    locked: Locked,
    Json(payment): Json<Payment>,
) -> Result<Response, LockLost> {
    // What is locked is what is looked up: the header was read once, by the layer.
    let key = locked.key().as_bytes();
    let earlier = ledger.receipts().get(key).cloned();
    if let Some(receipt) = earlier {
        return Ok(if receipt.amount == payment.amount {
            (StatusCode::OK, Json(receipt)).into_response()
        } else {
            let problem = "this Idempotency-Key was used for another payment\n";
            (StatusCode::UNPROCESSABLE_ENTITY, problem).into_response()
        });
    }
    // Just before what must not be done twice. Hand the key on to the payment provider too, if it takes
    // one: a process that ends between the charge and the receipt leaves no other trace.
    locked.ensure()?;
    let receipt = ledger.charge(&payment).await;
    ledger.receipts().insert(key.to_owned(), receipt.clone());
    Ok((StatusCode::CREATED, Json(receipt)).into_response())
}

/// Says how many charges there were. A GET needs no lock.
async fn charges(State(ledger): State<Arc<Ledger>>) -> Json<u64> {
    Json(ledger.charges.load(SeqCst))
}

impl Ledger {
    /// Has the money moved, somewhere far away.
    async fn charge(&self, payment: &Payment) -> Receipt {
        sleep(self.charge).await;
        Receipt {
            charge: self.charges.fetch_add(1, SeqCst) + 1,
            amount: payment.amount,
        }
    }

    fn receipts(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Receipt>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
