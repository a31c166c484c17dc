#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;

mod keep_alive;
mod lease;
mod node;
mod quorum;
mod reply;
mod retry;
mod round;
mod tally;
mod timestamp;
mod token;
mod ttl;
mod validity;

pub use keep_alive::{KeepAlive, KeepAliveError};
pub use lease::{Event, Lease, LeaseConfig, LossReason, Operation, RoundId, Transmit};
pub use node::{NodeId, NodeSet};
pub use quorum::{Quorum, QuorumError};
pub use reply::Reply;
pub use retry::{RetrySchedule, RetryScheduleError};
pub use round::{
    Acquire, AcquireFailure, AcquireVerdict, Extend, ExtendVerdict, Release, ReleaseVerdict,
};
pub use tally::Tally;
pub use timestamp::Timestamp;
pub use token::{Nonce, Token};
pub use ttl::{Ttl, TtlError};
pub use validity::{Drift, Validity, ValidityError};
