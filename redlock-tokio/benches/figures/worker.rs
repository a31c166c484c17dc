//! A worker process. It does what its order says from the first line that comes in on standard input
//! until that ends, which it also does when the parent is gone.

use std::{io, process, thread, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

use crate::{
    Result,
    contestants::{Contestant, Dropped, InProcess, Name, Newcomers, NoLock, Ours, Plain, Rslock},
    group::Order,
    history::TaskHistory,
    load, runtime,
};

/// The line that a worker writes when it can begin.
pub(crate) const READY: &str = "ready";

/// How long it may take to connect and to acquire a lock that is free.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long the last holds and their releases may take.
const END_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn run(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let histories = runtime()?.block_on(async {
        match order.group.contestant {
            Name::Plain => work::<Plain>(&order).await,
            Name::Rslock => work::<Rslock>(&order).await,
            Name::Ours => work::<Ours>(&order).await,
            Name::Dropped => work::<Dropped>(&order).await,
            Name::Newcomers => work::<Newcomers>(&order).await,
            Name::InProcess => work::<InProcess>(&order).await,
            Name::NoLock => work::<NoLock>(&order).await,
            name => Err(format!("{name} is not written in Rust").into()),
        }
    })?;
    println!("{}", serde_json::to_string(&histories)?);
    Ok(())
}

async fn work<C: Contestant>(order: &Order) -> Result<Vec<TaskHistory>> {
    let (started, stopped) = listen();
    let contestant = timeout(START_LIMIT, warm_up::<C>(order)).await??;
    println!("{READY}");
    started.await.map_err(|_| "the parent is gone")?;
    load::run(&contestant, order, &stopped).await
}

/// Opens connections and loads scripts, which is not to be measured.
async fn warm_up<C: Contestant>(order: &Order) -> Result<C> {
    let contestant = C::connect(&order.urls, order.group.access).await?;
    let key = format!("warm-up:{}", process::id());
    let held = contestant.acquire(&key).await?;
    // On a busy machine a release may time out while many processes connect.
    let _ = contestant.release(&key, held).await;
    Ok(contestant)
}

/// Waits for the parent's line, and for the end, in a thread that nothing can hold up.
fn listen() -> (oneshot::Receiver<()>, watch::Receiver<bool>) {
    let (start, started) = oneshot::channel();
    let (stop, stopped) = watch::channel(false);
    thread::spawn(move || {
        let line = io::stdin().read_line(&mut String::new());
        if matches!(line, Ok(1..)) {
            // A receiver that is gone means that the worker has failed, and has said so.
            let _ = start.send(());
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
        } else {
            drop(start);
        }
        stop.send_replace(true);
        thread::sleep(END_LIMIT);
        eprintln!("a worker did not come to its end within {END_LIMIT:?}");
        process::exit(1);
    });
    (started, stopped)
}
