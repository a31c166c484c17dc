//! The critical sections: read, pause, write.

use std::time::Duration;

use redlock_tokio::FencingToken;
use tokio::time::sleep;

use super::{
    journal,
    store::{Deadline, Store},
    watch::Watch,
};
use crate::Result;

/// Increments the counter of each key. The store refuses writes after the end of validity.
pub(super) async fn increment(
    store: &Store,
    watch: &Watch,
    keys: &[usize],
    pause: Duration,
) -> Result<()> {
    let mut values = Vec::new();
    for key in keys {
        values.push(store.read(*key).await?);
    }
    rest(watch, pause).await;
    for (key, value) in keys.iter().zip(values) {
        let Some(deadline) = watch.deadline() else {
            journal::saw("writes not tried after a loss");
            return Ok(());
        };
        write(store, *key, value + 1, deadline).await?;
    }
    Ok(())
}

/// Reads a counter twice. While a reader has the lock, nobody writes.
pub(super) async fn read_twice(
    store: &Store,
    watch: &Watch,
    key: usize,
    pause: Duration,
) -> Result<()> {
    let before = store.read(key).await?;
    rest(watch, pause).await;
    let is_same = store.read(key).await? == before;
    journal::saw(match (is_same, watch.look()) {
        (true, _) => "reads",
        (false, true) => "torn reads",
        (false, false) => "torn reads after a loss",
    });
    Ok(())
}

/// Sets a counter, unless the deadline has passed.
pub(super) async fn write(store: &Store, key: usize, value: u64, deadline: Deadline) -> Result<()> {
    journal::saw(match store.write(key, value, deadline).await? {
        true => "writes",
        false => "writes refused because they were late",
    });
    Ok(())
}

/// How long a holder pauses before it shows its token, and then before it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    pub(super) before_claim: Duration,
    pub(super) before_write: Duration,
}

/// Increments a counter that only fences protect. A holder whose lock is over still tries to write.
pub(super) async fn increment_by_fence(
    store: &Store,
    watch: &Watch,
    key: usize,
    fence: FencingToken,
    pauses: Pauses,
) -> Result<()> {
    rest(watch, pauses.before_claim).await;
    if !store.claim(key, fence).await? {
        let is_wrong = watch.look();
        journal::saw(match is_wrong {
            true => "tokens refused within the validity",
            false => "tokens refused after a loss",
        });
        return Ok(());
    }
    let value = store.read(key).await?;
    rest(watch, pauses.before_write).await;
    if store.write_fenced(key, value + 1, fence).await? {
        journal::saw("writes by fence");
    } else {
        journal::saw("writes refused because of a larger token");
    }
    Ok(())
}

async fn rest(watch: &Watch, pause: Duration) {
    const LOOK: Duration = Duration::from_millis(100);
    let mut left = pause;
    while !left.is_zero() {
        let part = left.min(LOOK);
        sleep(part).await;
        watch.look();
        left -= part;
    }
}
