//! Many transfers at once between a few accounts of an SQL database. Each locks both of its accounts with
//! one `lock_all`, and commits its transaction *before* the release: what commits later is a lost update.
//!
//! ```sh
//! cargo run -p redlock-examples --features transfer --bin transfer
//! cargo run -p redlock-examples --features transfer --bin transfer -- --no-lock # money appears or vanishes
//! ```
//!
//! Several processes with the same `--database`, over the same `REDLOCK_NODES`, serialise as one does.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use fastrand::Rng;
use redlock_tokio::{LockOptions, Redlock};
use sqlx::{
    SqlitePool, query, query_scalar,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tokio::{task::JoinSet, time::sleep};

/// How long a transfer waits for its locks, or for another's transaction.
const PATIENCE: Duration = Duration::from_secs(30);

/// Transfers money between accounts, and counts it afterwards.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many accounts there are, with 100 each.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i64).range(2..))]
    accounts: i64,
    /// The database's file, which other processes may work on that lock over the same nodes. A
    /// temporary one by default.
    #[arg(long)]
    database: Option<PathBuf>,
    /// How many transfers are under way at once.
    #[arg(long, default_value_t = 16)]
    tellers: u64,
    /// How many transfers each of them makes.
    #[arg(long, default_value_t = 10)]
    transfers: u64,
    /// Where the random numbers begin.
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
    println!("{transfers} transfers took {:?}", start.elapsed());
    let after = bank.sum().await?;
    println!("{} accounts have {after}", options.accounts);
    bank.0.close().await;
    redlock.shutdown().await;
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
            to: (from + random.i64(1..accounts)) % accounts, // another one
            amount: random.i64(0..50),
        }
    }
}

/// Two transfers in opposite directions ask for the same two locks, and do not wait for each other in
/// a circle: `lock_all` gets both or none.
async fn locked(redlock: &Redlock, bank: &Bank, transfer: Transfer) -> Result<()> {
    let keys = [transfer.from, transfer.to].map(|account| format!("transfer:account:{account}"));
    let options = LockOptions::new()
        .wait(PATIENCE)
        .retry_delay(Duration::from_millis(2), Duration::from_millis(20));
    let guard = redlock.lock_all(keys).options(options).await?;
    bank.transfer(transfer, || guard.is_valid()).await?;
    drop(guard); // only now: the transaction is committed
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
            .journal_mode(SqliteJournalMode::Wal)
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

    /// Commits only while `is_locked`: after a pause of this process the locks may be somebody else's.
    ///
    /// What the balances are is read before the transaction and not in it: the decision takes a while, and
    /// nobody else could write until it is made.
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
        // Without the commit it is rolled back.
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

/// Asks whoever decides on transfers.
async fn is_approved(left: i64, amount: i64) -> bool {
    sleep(Duration::from_millis(1)).await; // a round trip
    left >= amount
}
