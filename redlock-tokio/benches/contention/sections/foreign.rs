use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::{
    Result,
    args::Args,
    contestant::Contestant,
    contestants::{Name, Ours, Plain, Polling, Rslock},
    table,
    test_bed::{NODES, TestBed},
    times::{Summary, Times},
};

const DELETIONS: usize = 100;
const EXPIRIES: usize = 30;

/// How long the foreign client holds the key until it deletes it.
const HOLD: Duration = Duration::from_millis(30);

/// The time to live of keys that are left to expire.
const SHORT_TTL: Duration = Duration::from_millis(60);

/// Of keys that are deleted: long enough for that.
const LONG_TTL: Duration = Duration::from_secs(10);

/// How long one wait may take.
const LIMIT: Duration = Duration::from_secs(10);

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
pub(super) fn measure(bed: &TestBed, args: &Args, failures: &mut Vec<String>) {
    let mut measured = Vec::new();
    let time = |us| format!("{} ({:.1})", table::time(us), us / bed.round_trip.us);
    for &contestant in &args.contestants {
        match watch(bed, contestant) {
            Ok(foreign) => measured.push(foreign),
            Err(error) => {
                failures.push(format!("{contestant} and a foreign holder: {error}"));
            }
        }
    }
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
    let table = table::of(&measured, columns);
    println!(
        "## Foreign holder, one waits\n\n\
         A plain client has the key on all nodes, and deletes it after {} ms, {DELETIONS} times, or \
         lets it expire after {} ms, {EXPIRIES} times: how soon the one that waits is in.\n\n{table}\n",
        HOLD.as_millis(),
        SHORT_TTL.as_millis(),
    );
}

fn watch(bed: &TestBed, contestant: Name) -> Result<Foreign> {
    bed.runtime.block_on(async {
        let (after_deletion, after_expiry) = match contestant {
            Name::Floor => waits::<Polling>(bed).await?,
            Name::Rslock => waits::<Rslock>(bed).await?,
            Name::Ours => waits::<Ours>(bed).await?,
            _ => return Err("it is not measured by itself".into()),
        };
        Ok(Foreign {
            contestant,
            after_deletion: after_deletion.summary(),
            after_expiry: after_expiry.summary(),
        })
    })
}

async fn waits<C: Contestant>(bed: &TestBed) -> Result<(Times, Times)> {
    let foreigner = Plain::connect(&bed.urls).await?;
    let contestant = C::connect(&bed.urls).await?;
    // Connections are opened, scripts loaded.
    let key = bed.new_key();
    let held = contestant.acquire(&key).await?;
    contestant.release(&key, held).await?;

    let mut deletions = Times::new()?;
    for _ in 0..DELETIONS {
        let key = bed.new_key();
        seize(&foreigner, &key, LONG_TTL).await?;
        let waiting = tokio::spawn(enter(contestant.clone(), key.clone()));
        tokio::time::sleep(HOLD).await;
        let votes = foreigner.delete(&key, TOKEN).await.granted();
        let deleted = Instant::now();
        all_nodes(votes)?;
        deletions.record(waiting.await??.saturating_duration_since(deleted));
    }
    let mut expiries = Times::new()?;
    for _ in 0..EXPIRIES {
        let key = bed.new_key();
        let expiry = Instant::now() + SHORT_TTL;
        seize(&foreigner, &key, SHORT_TTL).await?;
        let waiting = tokio::spawn(enter(contestant.clone(), key));
        expiries.record(waiting.await??.saturating_duration_since(expiry));
    }
    Ok((deletions, expiries))
}

pub(super) async fn seize(foreigner: &Plain, key: &str, ttl: Duration) -> Result<()> {
    all_nodes(foreigner.set(key, TOKEN, ttl).await.granted())
}

fn all_nodes(votes: usize) -> Result<()> {
    match votes {
        NODES => Ok(()),
        _ => Err(format!("only {votes} nodes did what the foreign client asked").into()),
    }
}

/// Returns when the lock was acquired, after it was released.
async fn enter<C: Contestant>(contestant: C, key: String) -> Result<Instant> {
    let held = timeout(LIMIT, contestant.acquire(&key)).await??;
    let entered = Instant::now();
    contestant.release(&key, held).await?;
    Ok(entered)
}
