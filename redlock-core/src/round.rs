//! One request to every node, a tally, one verdict.
//!
//! A verdict comes as soon as it is certain, before the slowest node has answered: when a quorum is
//! reached, or when the nodes that are left cannot make one any more.

mod acquire;
mod extend;
mod fence;
#[cfg(test)]
mod properties;
mod release;

pub use acquire::AcquireFailure;
pub(crate) use acquire::{Acquire, AcquireVerdict};
pub(crate) use extend::{Extend, ExtendVerdict};
pub(crate) use fence::{Fence, FenceVerdict};
pub(crate) use release::Release;
pub use release::ReleaseVerdict;
