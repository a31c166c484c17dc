use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::Sections;
use crate::{
    Result,
    bed::{Bed, NODES},
    shared::{
        contestants::{Contestant, Name, Ours, Plain, Rslock},
        round_trip::round_trips,
        table,
        times::{Summary, Times},
    },
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
struct Foreign {
    contestant: Name,
    /// From the last node's answer to the deletion. Nothing if the majority was faster than that.
    after_deletion: Summary,
    /// From when the nodes were asked to set the key, plus its time to live: at most a round trip
    /// and the millisecond that Redis rounds to too long.
    after_expiry: Summary,
}

/// Measures all contestants, and prints a table.
pub(super) fn measure(sections: &mut Sections<'_>) -> Result<()> {
    let (runtime, bed) = (&sections.bed.runtime, sections.bed);
    let (_, round_trip) = runtime.block_on(round_trips(&bed.urls))?;
    let mut measured = Vec::new();
    for outcome in runtime.block_on(async {
        [
            waits::<Plain>(bed, Name::Floor).await,
            waits::<Rslock>(bed, Name::Rslock).await,
            waits::<Ours>(bed, Name::Ours).await,
        ]
    }) {
        match outcome {
            Ok(foreign) => measured.push(foreign),
            Err(error) => sections.failures.push(format!("a foreign holder: {error}")),
        }
    }
    let time = |us| format!("{} ({:.1})", table::time(us), us / round_trip);
    let columns: &[table::Column<'_, Foreign>] = &[
        ("contestant", &|it| it.contestant.to_string()),
        ("after deletion p50 (round trips)", &|it| {
            time(it.after_deletion.p50_us)
        }),
        ("p99", &|it| table::time(it.after_deletion.p99_us)),
        ("after expiry p50 (round trips)", &|it| {
            time(it.after_expiry.p50_us)
        }),
        ("max", &|it| table::time(it.after_expiry.max_us)),
    ];
    println!(
        "## Foreign holder, one waits\n\n\
         A plain client has the key on all nodes, and deletes it after {} ms, {DELETIONS} times, or \
         lets it expire after {} ms, {EXPIRIES} times: how soon the one that waits is in. A round trip is {}.\n\n{}\n",
        HOLD.as_millis(),
        SHORT_TTL.as_millis(),
        table::time(round_trip),
        table::of(&measured, columns),
    );
    Ok(())
}

async fn waits<C: Contestant>(bed: &Bed, name: Name) -> Result<Foreign> {
    let foreigner = Plain::connect(&bed.urls).await?;
    let contestant = C::connect(&bed.urls).await?;
    // Connections are opened, scripts loaded.
    enter(contestant.clone(), bed.new_key()).await?;

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
    let mut after_expiry = Times::default();
    for _ in 0..EXPIRIES {
        let key = bed.new_key();
        let expiry = Instant::now() + SHORT_TTL;
        all_nodes(foreigner.set(&key, TOKEN, SHORT_TTL).await.granted())?;
        let waiting = tokio::spawn(enter(contestant.clone(), key));
        after_expiry.record(waiting.await??.saturating_duration_since(expiry));
    }
    Ok(Foreign {
        contestant: name,
        after_deletion: after_deletion.summary(),
        after_expiry: after_expiry.summary(),
    })
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
