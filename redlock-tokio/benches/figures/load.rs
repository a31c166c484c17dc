use std::time::Duration;

use tokio::{sync::watch, task::JoinSet, time::sleep};

use crate::{
    Result,
    contestants::Contestant,
    group::{Group, Order},
    history::{Hold, TaskHistory, now, time},
};

/// Lets each task acquire its key, hold the lock, and release it, again and again until they are stopped.
pub(crate) async fn run<C: Contestant>(
    contestant: &C,
    order: &Order,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<TaskHistory>> {
    let mut running = JoinSet::new();
    for task in 0..order.group.tasks {
        let key = match order.group.own_keys {
            true => format!("{}:{task}", order.key),
            false => order.key.clone(),
        };
        running.spawn(cycle(contestant.clone(), key, order.group, stop.clone()));
    }
    Ok(running.join_all().await)
}

async fn cycle<C: Contestant>(
    contestant: C,
    key: String,
    group: Group,
    mut stop: watch::Receiver<bool>,
) -> TaskHistory {
    let mut history = TaskHistory::default();
    while !*stop.borrow() {
        let asked = now();
        let held = tokio::select! {
            // A task that has the lock at the end has entered.
            biased;
            held = contestant.acquire(&key) => held,
            _ = stop.wait_for(|stopped| *stopped) => {
                history.waiting_since = Some(asked);
                break;
            }
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => {
                let after = time(asked..now());
                history.fail(format_args!("acquire after {after:?}: {error}"));
                // A node that is gone fails at once, again and again.
                sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let entered = now();
        if group.spins {
            spin(entered, group.hold).await;
        } else {
            sleep(group.hold).await;
        }
        let left = now();
        if let Err(error) = contestant.release(&key, held).await {
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
