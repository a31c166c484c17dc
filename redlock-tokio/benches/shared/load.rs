use std::time::Duration;

use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{
    contestants::Contestant,
    history::{Hold, TaskHistory, now, time},
};
use crate::Result;

/// What each of some tasks does again and again: it acquires its key, holds the lock, and releases it.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
    /// Whether a holder reads the clock all the time, since tokio's timer counts whole milliseconds. Otherwise it
    /// sleeps.
    pub(crate) spins: bool,
    /// How long an acquisition that has begun may go on after the end.
    pub(crate) grace: Duration,
}

/// Runs a load until it is stopped.
pub(crate) async fn run<C: Contestant>(
    contestant: &C,
    load: Load,
    key_of: impl Fn(usize) -> String,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<TaskHistory>> {
    let mut running = JoinSet::new();
    for task in 0..load.tasks {
        let (contestant, key, stop) = (contestant.clone(), key_of(task), stop.clone());
        running.spawn(async move { cycle(&contestant, &key, load, stop).await });
    }
    let mut histories = Vec::new();
    while let Some(history) = running.join_next().await {
        histories.push(history?);
    }
    Ok(histories)
}

async fn cycle<C: Contestant>(
    contestant: &C,
    key: &str,
    load: Load,
    mut stop: watch::Receiver<bool>,
) -> TaskHistory {
    let mut history = TaskHistory::default();
    while !*stop.borrow() {
        let asked = now();
        let over = async {
            let _ = stop.wait_for(|stopped| *stopped).await;
            sleep(load.grace).await;
        };
        let held = tokio::select! {
            // A task that has the lock at the end has entered.
            biased;
            held = contestant.acquire(key) => held,
            () = over => {
                history.waiting_since = Some(asked);
                break;
            }
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => {
                history.fail(format_args!(
                    "acquire after {:?}: {error}",
                    time(asked..now())
                ));
                // A node that is gone fails at once, again and again.
                sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let entered = now();
        if load.spins {
            spin(entered, load.hold).await;
        } else {
            sleep(load.hold).await;
        }
        let left = now();
        if let Err(error) = contestant.release(key, held).await {
            history.fail(format_args!("release: {error}"));
        }
        history.holds.push(Hold {
            asked,
            entered,
            left,
            released: now(),
        });
    }
    history
}

/// Reads the clock until the time is over, and lets other tasks run meanwhile.
async fn spin(start: u64, hold: Duration) {
    let hold = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
    while now() - start < hold {
        tokio::task::yield_now().await;
    }
}
