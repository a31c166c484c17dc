//! Many concurrent transfers between a few accounts of an SQL database. Each transfer locks both of its accounts
//! with one `lock_all`, and commits its transaction *before* the release. A commit after the release could lose
//! an update.
//!
//! ```sh
//! cargo run -p redlock-examples --features transfer --bin transfer
//! cargo run -p redlock-examples --features transfer --bin transfer -- --no-lock # money appears or vanishes
//! ```
//!
//! Several processes with the same `--database` and the same `REDLOCK_NODES` work together.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use fastrand::Rng;
use redlock_tokio::{LockOptions, Redlock};
use sqlx::{SqlitePool, query, query_scalar, sqlite::SqliteConnectOptions};
use tokio::{task::JoinSet, time::sleep};

/// How long a transfer waits for its locks, or for the transaction of another transfer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Transfers money between accounts, and checks the sum.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many accounts there are. Each of them starts with 100.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i64).range(2..))]
    accounts: i64,
    /// The file of the database, by default a temporary one. Other processes that lock over the same nodes may
    /// use the same file.
    #[arg(long)]
    database: Option<PathBuf>,
    /// How many tellers work at the same time.
    #[arg(long, default_value_t = 16)]
    tellers: u64,
    /// How many transfers each teller makes.
    #[arg(long, default_value_t = 10)]
    transfers: u64,
    /// The seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Transfers without the locks.
    #[arg(long)]
    no_lock: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock transfer, on {nodes}; seed {}", options.seed);

    let temporary = tempfile::tempdir()?;
    let file = options.database.clone();
    let file = file.unwrap_or_else(|| temporary.path().join("accounts.db"));
    let bank = Bank::open(&file, options.accounts)
        .await
        .with_context(|| format!("cannot work with {}", file.display()))?;
    let before = bank.sum().await?;
    println!("{} accounts have {before}", options.accounts);

    let start = Instant::now();
    let mut tellers = JoinSet::new();
    for teller in 0..options.tellers {
        let (options, redlock, bank) = (options.clone(), redlock.clone(), bank.clone());
        tellers.spawn(async move {
            let mut random = Rng::with_seed(options.seed.wrapping_add(teller << 32));
            for _ in 0..options.transfers {
                let transfer = Transfer::random(&mut random, options.accounts);
                if options.no_lock {
                    bank.transfer(transfer, || true).await?;
                } else {
                    locked(&redlock, &bank, transfer).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(outcome) = tellers.join_next().await {
        outcome??;
    }

    let transfers = options.tellers.saturating_mul(options.transfers);
    println!("{transfers} transfers took {:.1?}", start.elapsed());
    let after = bank.sum().await?;
    println!("{} accounts have {after}", options.accounts);
    bank.0.close().await;
    redlock.shutdown(None).await;
    ensure!(after == before, "{before} became {after}");
    Ok(())
}

#[derive(Clone, Copy)]
struct Transfer {
    from: i64,
    to: i64,
    amount: i64,
}

impl Transfer {
    fn random(random: &mut Rng, accounts: i64) -> Self {
        let from = random.i64(0..accounts);
        Self {
            from,
            to: (from + random.i64(1..accounts)) % accounts, // not the same account
            amount: random.i64(0..50),
        }
    }
}

/// Makes a transfer under the locks of both accounts. Two transfers in opposite directions want the same two locks
/// and cannot deadlock, because `lock_all` gets both locks or none.
async fn locked(redlock: &Redlock, bank: &Bank, transfer: Transfer) -> Result<()> {
    let keys = [transfer.from, transfer.to].map(|account| format!("transfer:account:{account}"));
    let options = LockOptions::new()
        .wait(PATIENCE)
        .retry_delay(Duration::from_millis(2), Duration::from_millis(20));
    let guard = redlock.lock_all(keys).options(options).await?;
    bank.transfer(transfer, || guard.is_valid()).await?;
    drop(guard); // after the commit
    Ok(())
}

/// Accounts in an SQL database.
#[derive(Clone)]
struct Bank(SqlitePool);

impl Bank {
    async fn open(file: &Path, accounts: i64) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .busy_timeout(PATIENCE);
        let database = SqlitePool::connect_with(options).await?;
        let mut transaction = database.begin_with("BEGIN IMMEDIATE").await?;
        query("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
            .execute(&mut *transaction)
            .await?;
        let count = query_scalar("SELECT count(*) FROM accounts");
        let count: i64 = count.fetch_one(&mut *transaction).await?;
        if count == 0 {
            for id in 0..accounts {
                query("INSERT INTO accounts (id, balance) VALUES (?, 100)")
                    .bind(id)
                    .execute(&mut *transaction)
                    .await?;
            }
        } else {
            ensure!(count == accounts, "it has {count} accounts, see --accounts");
        }
        transaction.commit().await?;
        Ok(Self(database))
    }

    /// Makes a transfer, and commits it only if `is_locked`: after a pause of this process another holder may have
    /// the locks.
    ///
    /// The balances are read before the transaction, because the decision takes a while and a transaction would
    /// block all other writers until then.
    async fn transfer(&self, transfer: Transfer, is_locked: impl Fn() -> bool) -> Result<()> {
        let Transfer { from, to, amount } = transfer;
        let (left, credited) = (self.balance(from).await?, self.balance(to).await?);
        if !is_approved(left, amount).await {
            return Ok(());
        }
        let mut transaction = self.0.begin_with("BEGIN IMMEDIATE").await?;
        for (id, balance) in [(from, left - amount), (to, credited + amount)] {
            query("UPDATE accounts SET balance = ? WHERE id = ?")
                .bind(balance)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        // A transaction without a commit is rolled back.
        ensure!(is_locked(), "the locks were lost before the commit");
        transaction.commit().await?;
        Ok(())
    }

    async fn balance(&self, id: i64) -> Result<i64> {
        let balance = query_scalar("SELECT balance FROM accounts WHERE id = ?").bind(id);
        Ok(balance.fetch_one(&self.0).await?)
    }

    async fn sum(&self) -> Result<i64> {
        let sum = query_scalar("SELECT sum(balance) FROM accounts");
        Ok(sum.fetch_one(&self.0).await?)
    }
}

/// Asks for the approval of a transfer.
async fn is_approved(left: i64, amount: i64) -> bool {
    sleep(Duration::from_millis(1)).await; // a round trip
    left >= amount
}
