//! Ten tasks compete for one key; the output shows who holds it when.
//!
//! ```sh
//! cargo run -p redlock-examples --bin quickstart
//! REDLOCK_NODES=redis://a,redis://b,redis://c cargo run -p redlock-examples --bin quickstart
//! ```

use std::time::{Duration, Instant};

use anyhow::Result;
use redlock_tokio::{LockError, LockOptions, Redlock};
use tokio::{task::JoinSet, time::sleep};

const KEY: &str = "quickstart:order:42";

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock quickstart, on {nodes}");

    ten_tasks_one_key(&redlock).await?;
    extended_in_the_background(&redlock).await?;
    a_contended_try_lock(&redlock).await?;
    work_under_a_lock(&redlock).await?;

    let report = redlock.shutdown(None).await;
    println!("\nshut down: {} releases abandoned", report.abandoned);
    Ok(())
}

async fn ten_tasks_one_key(redlock: &Redlock) -> Result<()> {
    println!("\n1. Ten tasks compete for one key. Each holds a guard for 20 ms.");
    let start = Instant::now();
    let millis = move || start.elapsed().as_millis();
    let mut tasks = JoinSet::new();
    for task in 1..=10 {
        let redlock = redlock.clone();
        tasks.spawn(async move {
            // These tasks wait longer than the default, and probe more often.
            let options = LockOptions::new()
                .wait(Duration::from_secs(30))
                .retry_delay(Duration::from_millis(5), Duration::from_millis(30));
            let guard = redlock.lock(KEY).options(options).await?;
            println!("   {:>4} ms  task {task:>2} holds it", millis());
            sleep(Duration::from_millis(20)).await;
            println!("   {:>4} ms  task {task:>2} is done", millis());
            drop(guard); // released in the background
            Ok::<_, LockError>(())
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(())
}

async fn extended_in_the_background(redlock: &Redlock) -> Result<()> {
    println!("\n2. A guard with a ttl of 600 ms is extended in the background, every 200 ms.");
    let ttl = Duration::from_millis(600);
    let guard = redlock.lock(KEY).ttl(ttl).await?;
    let start = Instant::now();
    let mut before = guard.remaining();
    for _ in 0..9 {
        sleep(Duration::from_millis(100)).await;
        let remaining = guard.remaining();
        let extended = if remaining > before {
            "  <- extended"
        } else {
            ""
        };
        println!(
            "   {:>4} ms  {:>3} ms left{extended}",
            start.elapsed().as_millis(),
            remaining.as_millis()
        );
        before = remaining;
    }
    println!("   dropping the guard releases the lock ..");
    drop(guard);
    let start = Instant::now();
    let guard = redlock.lock(KEY).await?;
    println!(
        "   .. and another task gets it {:.3?} later",
        start.elapsed()
    );
    guard.release().await;
    Ok(())
}

async fn a_contended_try_lock(redlock: &Redlock) -> Result<()> {
    println!("\n3. A try_lock on a held lock fails, and the error names the reason:");
    let guard = redlock.lock(KEY).await?;
    match redlock.try_lock(KEY).await {
        Err(error) => println!("   {error}"),
        Ok(_) => anyhow::bail!("two holders at once"),
    }
    let report = guard.release().await;
    println!("   release: {:?}", report.outcome);
    Ok(())
}

async fn work_under_a_lock(redlock: &Redlock) -> Result<()> {
    println!("\n4. `with` runs work under the lock, and drops the work if the lock is lost:");
    let answer = redlock.lock(KEY).with(async |hold| {
        println!("   working, {:.3?} left", hold.remaining());
        6 * 7
    });
    println!("   {}", answer.await?);
    Ok(())
}
