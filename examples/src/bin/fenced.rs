//! A holder is paused for longer than its lock lives, and then writes late. The database refuses the write,
//! because it has stored a larger fencing token.
//!
//! No lock can stop such a write. A check before the write cannot stop it either, because the pause may come
//! between the check and the write. The database can, if each write carries the token of its holder.
//!
//! ```sh
//! cargo run -p redlock-examples --features fenced --bin fenced
//! cargo run -p redlock-examples --features fenced --bin fenced -- --no-fence # the late write wins, and a deposit is lost
//! ```

use std::{path::Path as FilePath, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{Request, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use clap::Parser;
use redlock_axum::{LockLayer, Locked, key, path};
use redlock_tokio::{FencingToken, LockOptions};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::{SqlitePool, query, query_scalar, sqlite::SqliteConnectOptions};
use tokio::sync::Notify;
use tower::ServiceExt;

/// Lets a holder write after its lock is lost.
#[derive(Debug, Parser)]
struct Options {
    /// Ignores the tokens.
    #[arg(long)]
    no_fence: bool,
}

/// The body of a request.
#[derive(Deserialize)]
struct Deposit {
    name: String,
    amount: i64,
    /// Whether the handler is paused between its read and its write.
    #[serde(default)]
    pauses: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock fenced, on {nodes}");

    let directory = tempfile::tempdir()?;
    let file = directory.path().join("accounts.db");
    let bank = Arc::new(Bank::open(&file, options.no_fence).await?);
    // Without renewal, the lock of a waiting handler expires, like that of a stopped process.
    let stopped = LockOptions::new().no_renewal();
    // The handler takes a number, so `07` is the account 7.
    let account = key("account", path("account").parse::<i64>());
    let layer = LockLayer::new(redlock.clone(), account)
        .ttl(Duration::from_millis(500))
        .options(stopped)
        .fenced(true);
    layer.check()?;
    let router = Router::new()
        .route("/accounts/{account}/deposits", post(deposit))
        .route_layer(layer)
        .with_state(Arc::clone(&bank));

    let paused = json!({ "name": "Ada", "amount": 10, "pauses": true });
    let first = tokio::spawn(send(router.clone(), paused));
    bank.begun.notified().await;
    // Ada's lock expires, and Bob gets it.
    let bob = json!({ "name": "Bob", "amount": 50 });
    ensure!(send(router.clone(), bob).await? == StatusCode::OK);
    bank.over.notify_one();
    if first.await?? == StatusCode::CONFLICT {
        // The refused request changed nothing, so it can be repeated.
        let again = json!({ "name": "Ada", "amount": 10 });
        ensure!(send(router, again).await? == StatusCode::OK);
    }

    let balance = bank.balance(7).await?;
    println!("the account has {balance}");
    bank.database.close().await;
    redlock.shutdown(None).await;
    ensure!(
        balance == 160,
        "100 + 10 + 50 became {balance}: a deposit is lost"
    );
    Ok(())
}

/// Sends a request, and returns the status of the response.
async fn send(router: Router, deposit: Value) -> Result<StatusCode> {
    let request = Request::post("/accounts/7/deposits").header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(deposit.to_string()))?;
    let response = router.oneshot(request).await?;
    Ok(response.status())
}

/// Reads the balance and writes a new one. No other deposit on the account comes between the two, however long
/// they take.
async fn deposit(
    State(bank): State<Arc<Bank>>,
    Path(account): Path<i64>,
    locked: Locked,
    Json(deposit): Json<Deposit>,
) -> Result<StatusCode, Failure> {
    let Deposit { name, amount, .. } = deposit;
    let token = locked.fencing_token().context("the layer is fenced")?;
    if !bank.claim(account, token).await? {
        println!("{name}: the claim is refused");
        return Ok(StatusCode::CONFLICT);
    }
    let balance = bank.balance(account).await?;
    println!("{name}: reads {balance}, with token {token}");
    if deposit.pauses {
        println!("{name}: is paused");
        bank.begun.notify_one();
        bank.over.notified().await;
        println!(
            "{name}: goes on, and the lock is valid: {}",
            locked.is_valid()
        );
    }
    let balance = balance + amount;
    if !bank.write(account, balance, token).await? {
        println!("{name}: the write of {balance} is refused");
        return Ok(StatusCode::CONFLICT);
    }
    println!("{name}: writes {balance}");
    Ok(StatusCode::OK)
}

/// Accounts in an SQL database, each with the largest token of its holders.
struct Bank {
    database: SqlitePool,
    /// Whether to ignore the tokens.
    is_unfenced: bool,
    /// A handler that pauses signals the begin, and waits for the end.
    begun: Notify,
    over: Notify,
}

impl Bank {
    async fn open(file: &FilePath, is_unfenced: bool) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true);
        let database = SqlitePool::connect_with(options).await?;
        query("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)")
            .execute(&database)
            .await?;
        query("INSERT INTO accounts (id, balance, fence) VALUES (7, 100, 0)")
            .execute(&database)
            .await?;
        Ok(Self {
            database,
            is_unfenced,
            begun: Notify::new(),
            over: Notify::new(),
        })
    }

    /// Stores the token, so that later writes of all earlier holders are refused. Returns whether this holder is
    /// the latest. A handler claims the account before it reads the balance; otherwise a late write could come
    /// between its read and its write.
    async fn claim(&self, account: i64, token: FencingToken) -> Result<bool> {
        let claim = query("UPDATE accounts SET fence = $1 WHERE id = $2 AND (fence <= $1 OR $3)")
            .bind(number(token)?)
            .bind(account)
            .bind(self.is_unfenced);
        Ok(claim.execute(&self.database).await?.rows_affected() == 1)
    }

    /// Writes the balance, unless a later holder has claimed the account. Returns whether it wrote.
    async fn write(&self, account: i64, balance: i64, token: FencingToken) -> Result<bool> {
        let write =
            "UPDATE accounts SET balance = $1, fence = $3 WHERE id = $2 AND (fence <= $3 OR $4)";
        let write = query(write)
            .bind(balance)
            .bind(account)
            .bind(number(token)?)
            .bind(self.is_unfenced);
        Ok(write.execute(&self.database).await?.rows_affected() == 1)
    }

    async fn balance(&self, account: i64) -> Result<i64> {
        let balance = query_scalar("SELECT balance FROM accounts WHERE id = $1").bind(account);
        Ok(balance.fetch_one(&self.database).await?)
    }
}

/// Tokens have 53 bits at most, so each fits.
fn number(token: FencingToken) -> Result<i64> {
    Ok(i64::try_from(token.get())?)
}

/// An error of the database.
struct Failure(anyhow::Error);

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let error = format!("{:#}\n", self.0);
        (StatusCode::INTERNAL_SERVER_ERROR, error).into_response()
    }
}
