use std::time::Duration;

use tokio::{sync::watch, task::JoinSet};

use crate::{
    Result, clock,
    contestant::Contestant,
    history::{Hold, TaskHistory},
    order::{Order, Stay},
};

/// Runs tasks that acquire, hold and release one key, until they are stopped.
pub(crate) async fn run<C: Contestant>(
    contestant: &C,
    order: &Order,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<TaskHistory>> {
    let mut running = JoinSet::new();
    for _ in 0..order.tasks {
        let (contestant, order, stop) = (contestant.clone(), order.clone(), stop.clone());
        running.spawn(async move { cycle(&contestant, &order, stop).await });
    }
    let mut histories = Vec::new();
    while let Some(history) = running.join_next().await {
        histories.push(history?);
    }
    Ok(histories)
}

async fn cycle<C: Contestant>(
    contestant: &C,
    order: &Order,
    mut stop: watch::Receiver<bool>,
) -> TaskHistory {
    let mut history = TaskHistory::default();
    while !*stop.borrow() {
        let asked = clock::now();
        let held = tokio::select! {
            // A task that has the lock at the end has entered.
            biased;
            held = contestant.acquire(&order.key) => held,
            _ = stop.wait_for(|stopped| *stopped) => {
                history.waiting_since = Some(asked);
                break;
            }
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => {
                history.fail(format_args!("acquire: {error}"));
                // A node that is gone fails at once, again and again.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let entered = clock::now();
        match order.stay {
            Stay::Awake => spin(entered, order.hold).await,
            Stay::Asleep => tokio::time::sleep(order.hold).await,
        }
        history.holds.push(Hold {
            asked,
            entered,
            left: clock::now(),
        });
        if let Err(error) = contestant.release(&order.key, held).await {
            history.fail(format_args!("release: {error}"));
        }
    }
    history
}

/// Reads the clock until the time is over, and lets other tasks run meanwhile: the resolution of tokio's timer
/// is as long as the time to wait.
async fn spin(start: u64, time: Duration) {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    while clock::now() - start < time {
        tokio::task::yield_now().await;
    }
}
