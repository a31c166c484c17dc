//! Many transfers at once between a few accounts. Each locks both of its accounts with one `lock_all`,
//! and commits its transaction *before* the release: what commits later is a lost update.
//!
//! ```sh
//! cargo run -p redlock-examples --bin transfer
//! cargo run -p redlock-examples --bin transfer -- --no-lock # money appears or vanishes
//! ```

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Parser;
use redlock_tokio::Redlock;
use tokio::{task::JoinSet, time::sleep};

/// Transfers money between accounts, and counts it afterwards.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many accounts there are, with 100 each.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..))]
    accounts: u64,
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

    let balances = vec![100; usize::try_from(options.accounts)?];
    let bank = Arc::new(Bank(Mutex::new(balances)));
    let before = bank.sum();
    println!("{} accounts have {before}", options.accounts);

    let start = Instant::now();
    let mut tellers = JoinSet::new();
    for teller in 0..options.tellers {
        let (options, redlock, bank) = (options.clone(), redlock.clone(), Arc::clone(&bank));
        tellers.spawn(async move {
            let mut random = SplitMix(options.seed.wrapping_add(teller << 32));
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

    let transfers = options.tellers * options.transfers;
    println!("{transfers} transfers took {:?}", start.elapsed());
    let after = bank.sum();
    println!("{} accounts have {after}", options.accounts);
    redlock.shutdown().await;
    ensure!(after == before, "{before} became {after}");
    Ok(())
}

#[derive(Clone, Copy)]
struct Transfer {
    from: u64,
    to: u64,
    amount: i64,
}

impl Transfer {
    fn random(random: &mut SplitMix, accounts: u64) -> Self {
        let from = random.below(accounts);
        Self {
            from,
            to: (from + 1 + random.below(accounts - 1)) % accounts, // another one
            amount: random.below(50).cast_signed(),
        }
    }
}

/// Two transfers in opposite directions ask for the same two locks, and do not wait for each other in
/// a circle: `lock_all` gets both or none.
async fn locked(redlock: &Redlock, bank: &Bank, transfer: Transfer) -> Result<()> {
    let keys = [transfer.from, transfer.to].map(|account| format!("transfer:account:{account}"));
    let guard = redlock
        .lock_all(keys)
        .wait(Duration::from_secs(30))
        .retry_delay(Duration::from_millis(2), Duration::from_millis(20))
        .await?;
    bank.transfer(transfer, || guard.is_valid()).await?;
    drop(guard); // only now: the transaction is committed
    Ok(())
}

/// A database that keeps two transactions from nothing: each reads what the other is about to change.
struct Bank(Mutex<Vec<i64>>);

impl Bank {
    /// Commits only while `is_locked`: after a pause of this process the locks may be somebody else's.
    async fn transfer(&self, transfer: Transfer, is_locked: impl Fn() -> bool) -> Result<()> {
        let Transfer { from, to, amount } = transfer;
        let mut transaction = Transaction::new();
        let available = self.select(from).await;
        if available < amount {
            return Ok(()); // and nothing was changed
        }
        transaction.push((from, available - amount));
        transaction.push((to, self.select(to).await + amount));
        ensure!(is_locked(), "the locks were lost before the commit");
        self.commit(transaction).await;
        Ok(())
    }

    async fn select(&self, account: u64) -> i64 {
        sleep(Duration::from_millis(1)).await; // a round trip to the database
        self.balances()[account as usize]
    }

    async fn commit(&self, transaction: Transaction) {
        sleep(Duration::from_millis(1)).await;
        let mut balances = self.balances();
        for (account, balance) in transaction {
            balances[account as usize] = balance;
        }
    }

    fn sum(&self) -> i64 {
        self.balances().iter().sum()
    }

    fn balances(&self) -> MutexGuard<'_, Vec<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be written at the commit.
type Transaction = Vec<(u64, i64)>;

/// Random numbers that a seed repeats.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)) % limit
    }
}
