//! A Tower stack without HTTP. Deposits are jobs, and jobs of the same account run one at a time, across all
//! processes that use the same nodes.
//!
//! ```sh
//! cargo run -p redlock-examples --features jobs --bin jobs
//! ```

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use redlock_examples::lock;
use redlock_tokio::Hold;
use redlock_tower::{LockLayer, Locked};
use tokio::{task::JoinSet, time::sleep};
use tower::{Service, ServiceBuilder, ServiceExt};

const ACCOUNTS: u64 = 4;
const JOBS_PER_ACCOUNT: u64 = 6;

/// A request that has nothing to do with HTTP.
#[derive(Debug)]
struct Deposit {
    account: u64,
    amount: u64,
    /// The lock of the job, which the layer sets.
    hold: Option<Hold>,
}

/// A bank whose deposits are lost if two of them overlap.
#[derive(Default)]
struct Bank {
    balances: Mutex<BTreeMap<u64, u64>>,
}

impl Bank {
    async fn deposit(&self, job: Deposit) -> io::Result<u64> {
        let before = self.balance(job.account);
        sleep(Duration::from_millis(5)).await; // long enough for another job to read the same balance
        if !job.hold.as_ref().is_some_and(Hold::is_valid) {
            return Err(io::Error::other("the lock was lost before the write"));
        }
        let after = before + job.amount;
        lock(&self.balances).insert(job.account, after);
        Ok(after)
    }

    fn balance(&self, account: u64) -> u64 {
        lock(&self.balances).get(&account).copied().unwrap_or(0)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock jobs, on {nodes}");

    let bank = Arc::new(Bank::default());
    let layer = LockLayer::new(redlock.clone(), |job: &Deposit| {
        format!("jobs:account:{}", job.account)
    })
    .wait(Duration::from_secs(30))
    .share_hold(|job: &mut Deposit, lock: Locked| job.hold = Some(lock.hold().view()));
    let service = ServiceBuilder::new().layer(layer).service_fn({
        let bank = Arc::clone(&bank);
        move |job: Deposit| {
            let bank = Arc::clone(&bank);
            async move { bank.deposit(job).await }
        }
    });

    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for number in 0..ACCOUNTS * JOBS_PER_ACCOUNT {
        let mut service = service.clone();
        let account = number % ACCOUNTS;
        jobs.spawn(async move {
            let job = Deposit {
                account,
                amount: 10,
                hold: None,
            };
            let balance = service.ready().await?.call(job).await?;
            println!(
                "{:>4} ms  account {account}: +10 makes {balance}",
                start.elapsed().as_millis()
            );
            anyhow::Ok(())
        });
    }
    while let Some(outcome) = jobs.join_next().await {
        outcome??;
    }

    for account in 0..ACCOUNTS {
        let balance = bank.balance(account);
        ensure!(
            balance == 10 * JOBS_PER_ACCOUNT,
            "account {account} lost a deposit: {balance}"
        );
    }
    println!("no deposit was lost");
    redlock.shutdown(None).await;
    Ok(())
}
