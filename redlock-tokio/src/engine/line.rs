//! The order in which the processes of a fleet try to get a key: each waits in a line on one node until it is called.
//!
//! A request first tries as usual. If the key is taken, its lease [stands in the line](super::requests) for all requests of its
//! process, and makes no attempt until the node says that it is the first, or until it is called. A process that has got the lock,
//! or gives up, leaves the line, and the node publishes a call on the channel of the process that is the first then.
//!
//! Up to eight processes in the line of a semaphore may try at a time. A process that has a permit already may try only as the
//! first. Readers stand in no line, since they do not keep each other out. Nor do requests with a limit of attempts, locks of more
//! than 16 keys, and adoptions.
//!
//! [`place`] has the rule, and what happens when calls, processes or the node are lost.

pub(crate) mod place;

use std::time::Duration;

use redlock_core::{NodeId, Timestamp};
use smallvec::SmallVec;

use super::lane::LaneHandle;
use crate::{Key, random::Random};

/// How many processes of the line of a semaphore try at a time, each for another permit.
pub(crate) const MOST_ACTIVE: usize = 8;

/// The node that has the line of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineNode {
    pub(crate) id: NodeId,
    /// Whether all clients find this node. Otherwise other processes may reach a node that this one does not, and stand in line
    /// there.
    pub(crate) is_usual: bool,
}

/// Returns the node that has the line of a key: the voter with the largest hash of the key and the server. All clients find
/// the same one, in whatever order they list the nodes.
pub(crate) fn node_of(key: &Key, lanes: &[LaneHandle], now: Timestamp) -> Option<LineNode> {
    let ranks = lanes.iter().enumerate().filter_map(|(index, lane)| {
        let rank = |name: &[u8]| hash(key.as_bytes(), name);
        let (rank, is_voting) = lane.board.rank(now, &lane.address, rank);
        Some((rank, is_voting, NodeId::new(index)?))
    });
    let ranks: SmallVec<[_; 8]> = ranks.collect();
    let voting = ranks.iter().filter(|(_, is_voting, _)| *is_voting);
    let (highest, _, id) = *voting.max_by_key(|(rank, ..)| *rank)?;
    Some(LineNode {
        id,
        is_usual: ranks.iter().all(|(rank, ..)| *rank <= highest),
    })
}

/// FNV-1a, and the finalizer of `MurmurHash3`, which spreads the last bytes over all bits. All clients must agree on it.
fn hash(key: &[u8], server: &[u8]) -> u64 {
    let bytes = key.iter().chain(server);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns a time between these two, for a process that is not called.
pub(crate) fn polls_between(shortest: Duration, longest: Duration, random: &Random) -> Duration {
    let part = random.u128().unwrap_or_default() as u32 % 1024;
    shortest + (longest.saturating_sub(shortest)) * part / 1024
}
