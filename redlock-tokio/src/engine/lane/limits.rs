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

/// The most commands that travel in one batch. The limit bounds how long others wait behind a
/// batch. It is far beyond what gathers by itself between two round trips.
pub(super) const MAX_BATCH: usize = 512;

/// How many batches may be in flight at once. On a long way, a single batch in flight would make
/// requests wait for up to a round trip before they leave. More than a few gain nothing. (With 64
/// tasks and 5 ms to the nodes, an acquisition takes 1.17 round trips with 2 of them, 1.11 with 8,
/// 1.10 with 64.)
pub(super) const MAX_BATCHES_IN_FLIGHT: usize = 8;

/// No further batch is sent while this many commands are in flight. The time that a node has to
/// answer runs for all of them, so they must not be more than the node can do in that time. The
/// time does not run for commands that wait in the queue.
pub(super) const MAX_COMMANDS_IN_FLIGHT: usize = MAX_BATCH;

/// How many messages may wait in a lane's queue. Without this limit the queue would grow without
/// bound if a node answers, but more slowly than it is asked.
pub(super) const MAX_QUEUED: usize = 16 * MAX_BATCH;

/// How long a node may be silent before the lane closes the connection and opens another. A node
/// that only stopped for a moment is better served on the old connection.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// Tokio's timers stand still while the machine sleeps, so the lane reads the clock at least once
/// per second.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
