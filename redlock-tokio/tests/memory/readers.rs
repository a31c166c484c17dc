//! Readers and writers, over nodes in memory, by tokio's clock.

mod downgrade;
mod errors;
mod exclusion;
mod joining;
mod loss;
mod marks;

use redlock_tokio::{MemoryNode, Redlock};

use crate::support::{MS, built, in_memory::over};

/// A client whose readers do not share leases: each of them asks the nodes.
async fn client_of_lone_readers(nodes: &[MemoryNode]) -> Redlock {
    built(over(nodes).handover_for(MS(0))).await
}
