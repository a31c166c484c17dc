use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::Bench;
use crate::{
    Result,
    bed::{Bed, NODES},
    contestants::{Access, Contestant, Name, Ours, Plain, Rslock},
    table,
    times::Times,
};

const DELETIONS: usize = 100;
const EXPIRIES: usize = 30;

/// How long the foreign client holds the key until it deletes it.
const HOLD: Duration = Duration::from_millis(30);

/// The time to live of keys that are left to expire.
const SHORT_TTL: Duration = Duration::from_millis(60);

/// Of keys that are deleted: long enough for that. No wait lasts longer.
const LONG_TTL: Duration = Duration::from_secs(10);

const TOKEN: &str = "somebody else's";

/// How soon a waiting contestant enters after another client, which does not know the contestant, has freed the key.
pub(super) fn measure(_bench: &mut Bench) -> Result<()> {
    let bed = Bed::near()?;
    let rows = bed.runtime.block_on(async {
        [
            waits::<Plain>(&bed, Name::Plain).await,
            waits::<Rslock>(&bed, Name::Rslock).await,
            waits::<Ours>(&bed, Name::Ours).await,
        ]
    });
    let mut table = table::new([
        "contestant",
        "after deletion p50",
        "p99",
        "after expiry p50",
        "max",
    ]);
    for row in rows {
        table.add_row(row?);
    }
    println!("## A foreign client frees the key, one waits\n\n{table}\n");
    Ok(())
}

async fn waits<C: Contestant>(bed: &Bed, name: Name) -> Result<[String; 5]> {
    let foreigner = Plain::connect(&bed.urls, Access::Lock).await?;
    let contestant = C::connect(&bed.urls, Access::Lock).await?;
    // Connections are opened, scripts loaded.
    enter(contestant.clone(), bed.new_key()).await?;

    // From the last node's answer to the deletion. Nothing if the majority was faster than that.
    let mut after_deletion = Times::default();
    for _ in 0..DELETIONS {
        let key = bed.new_key();
        all_nodes(foreigner.set(&key, TOKEN, LONG_TTL).await.granted())?;
        let waiting = tokio::spawn(enter(contestant.clone(), key.clone()));
        sleep(HOLD).await;
        let votes = foreigner.delete(&key, TOKEN).await.granted();
        let deleted = Instant::now();
        all_nodes(votes)?;
        after_deletion.record(waiting.await??.saturating_duration_since(deleted));
    }
    // From when the nodes were asked to set the key, plus its time to live: at most a round trip
    // and the millisecond that Redis rounds to too long.
    let mut after_expiry = Times::default();
    for _ in 0..EXPIRIES {
        let key = bed.new_key();
        let expiry = Instant::now() + SHORT_TTL;
        all_nodes(foreigner.set(&key, TOKEN, SHORT_TTL).await.granted())?;
        let waiting = tokio::spawn(enter(contestant.clone(), key));
        after_expiry.record(waiting.await??.saturating_duration_since(expiry));
    }
    let [deletion, expiry] = [after_deletion, after_expiry].map(|it| it.summary());
    let [p50, p99] = [deletion.p50_us, deletion.p99_us].map(table::time);
    let [expiry, max] = [expiry.p50_us, expiry.max_us].map(table::time);
    Ok([name.to_string(), p50, p99, expiry, max])
}

fn all_nodes(votes: usize) -> Result<()> {
    match votes {
        NODES => Ok(()),
        _ => Err(format!("only {votes} nodes did what the foreign client asked").into()),
    }
}

/// Returns when the lock was acquired, after it was released.
async fn enter<C: Contestant>(contestant: C, key: String) -> Result<Instant> {
    let held = timeout(LONG_TTL, contestant.acquire(&key)).await??;
    let entered = Instant::now();
    contestant.release(&key, held).await?;
    Ok(entered)
}
