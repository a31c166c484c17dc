//! Readers and writers, over nodes in memory, by tokio's clock.

mod downgrade;
mod errors;
mod exclusion;
mod joining;
mod loss;
mod marks;

use redlock_tokio::{MemoryNode, Redlock};

use crate::support::{MS, in_memory::over};

async fn client(nodes: &[MemoryNode]) -> Redlock {
    over(nodes).build().await.expect("nodes in memory")
}

/// A client whose readers do not share leases: each of them asks the nodes.
async fn client_of_lone_readers(nodes: &[MemoryNode]) -> Redlock {
    over(nodes).handover_for(MS(0)).build().await.unwrap()
}
