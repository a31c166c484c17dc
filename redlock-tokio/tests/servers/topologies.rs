//! Locks over a group of sentinels, and over a cluster.

mod cluster;
mod cluster_faults;
mod resharding;
mod rights;
mod sentinel;
mod sentinel_faults;

use std::time::Duration;

use redlock_tokio::{Redlock, RedlockBuilder};

use crate::support::built;

/// Builds a client, and waits until it may vote, however long that takes on a busy machine.
async fn ready(builder: RedlockBuilder) -> Redlock {
    let redlock = built(builder).await;
    redlock.ready(Duration::from_secs(120)).await.unwrap();
    redlock
}

/// Returns the URL of a group by these sentinels, without passwords.
fn sentinels_url<S: AsRef<str>>(name: &str, sentinels: &[S]) -> String {
    let sentinels: Vec<_> = sentinels.iter().map(AsRef::as_ref).collect();
    format!("redis+sentinel://{}/{name}", sentinels.join(","))
}
