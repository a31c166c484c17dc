//! How much a lane sends at once, and how long it waits.

use std::time::Duration;

/// How long a lane waits for its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    /// For the answer to a batch.
    pub(crate) answer: Duration,
    /// For a connection, with the questions before the first vote. Also for the refresh of a marker.
    pub(crate) connect: Duration,
}

/// A batch with this many keys is full. (Its last command may have more keys than there was room for.) The limit bounds
/// how long others wait behind a batch. It is far beyond what gathers by itself between two round trips.
pub(super) const MAX_BATCH: usize = 512;

/// The most keys of a small request. That is as many as one request of a layer has by default.
pub(super) const SMALL: usize = 16;

/// How many batches may be in flight at once. On a long way, a single batch in flight would make
/// requests wait for up to a round trip before they leave. More than a few gain nothing. (With 64
/// tasks and 5 ms to the nodes, an acquisition takes 1.17 round trips with 2 of them, 1.11 with 8,
/// 1.10 with 64.)
pub(super) const MAX_BATCHES_IN_FLIGHT: usize = 8;

/// `node_timeout` is the time for this many keys. A node has more time for more keys in flight: what is slow because of
/// our own load is not silent. (Where sixteen busy processes shared two processors, servers needed up to 0.2 s for
/// commands of a thousand keys.)
pub(super) const KEYS_PER_TIMEOUT: usize = MAX_BATCH / 4;

/// No further batch is sent while commands with this many keys are in flight. So a node that falls silent
/// is noticed soon. The time to answer does not run for commands that wait.
pub(super) const MAX_KEYS_IN_FLIGHT: usize = MAX_BATCH;

/// How many keys may wait for a node that is slower than a majority of the others: a second of work for one that takes
/// nearly its whole timeout for each batch.
pub(super) const MAX_BEHIND: usize = 16 * MAX_BATCH;

/// How many keys may wait for a node. Without this limit they would be more and more if a node
/// answers, but more slowly than it is asked.
pub(super) const MAX_WAITING: usize = 512 * MAX_BATCH;

/// Likewise, for large requests. (It is work for about two seconds where one client and its five servers
/// share two processors: less than a caller waits by default.)
pub(super) const MAX_WAITING_LARGE: usize = MAX_WAITING / 2;

/// How long a node may be silent before the lane closes the connection and opens another. A node
/// that only stopped for a moment is better served on the old connection.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// Tokio's timers stand still while the machine sleeps, so the lane reads the clock at least once
/// per second.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
