#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;

mod fencing;
mod keep_alive;
mod lease;
mod node;
mod quarantine;
mod quorum;
mod reply;
mod restarts;
mod retry;
mod round;
mod tally;
mod timestamp;
mod token;
mod ttl;
mod validity;

pub use fencing::FencingToken;
pub use keep_alive::{KeepAlive, KeepAliveError};
pub use lease::{Event, Lease, LeaseConfig, LossReason, Operation, RoundId, Standing, Transmit};
pub use node::{NodeId, NodeSet};
pub use quarantine::Quarantine;
pub use quorum::{Quorum, QuorumError};
pub use reply::Reply;
pub use restarts::{Restarts, RunId};
pub use retry::{RetrySchedule, RetryScheduleError};
pub use round::{
    Acquire, AcquireFailure, AcquireVerdict, Extend, ExtendVerdict, Fence, FenceVerdict, Release,
    ReleaseVerdict,
};
pub use tally::Tally;
pub use timestamp::Timestamp;
pub use token::{Nonce, Token};
pub use ttl::{Ttl, TtlError};
pub use validity::{Drift, Validity, ValidityError};
