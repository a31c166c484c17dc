//! One request to every node, a tally, one verdict.
//!
//! A verdict comes as soon as it is certain, before the slowest node has answered: when a quorum is
//! reached, or when the nodes that are left cannot make one any more.

mod acquire;
mod extend;
mod fence;
mod release;

pub use acquire::{Acquire, AcquireFailure, AcquireVerdict};
pub use extend::{Extend, ExtendVerdict};
pub use fence::{Fence, FenceVerdict};
pub use release::{Release, ReleaseVerdict};
