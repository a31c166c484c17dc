//! The [Redlock algorithm][redlock] as state machines without I/O: quorum, validity, drift, retry, renewal and release.
//!
//! The crate has no clock, no randomness and no dependencies. It decides, and a driver sends. The driver for tokio and
//! real Redis servers is `redlock-tokio`. A simulator or a model checker can drive the same code.
//!
//! [`Lease`] is the whole life of one lock for one client. It acquires, retries, renews and releases the lock, and
//! reports each change as an [`Event`]. [`Lease::acquire_fenced`] adds a [`FencingToken`]. A lease works in rounds. A
//! round sends one request to every node, counts the replies, and ends as soon as its outcome is certain. Other types
//! carry the rules, and their constructors check them once: [`Quorum`], [`Ttl`], [`Validity`], [`RetrySchedule`],
//! [`KeepAlive`]. An [`Electorate`] decides which nodes may vote. [`Lease::set_share`] makes the lock a semaphore of up
//! to 128 permits, or one of readers and writers. [`Lease::give`] and [`Lease::adopt`] pass a held lock to another
//! client.
//!
//! The [`guide`] has the drive loop, and what a driver must do. `PROOF.md` in the repository explains what was proven,
//! and how.
//!
//! [redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

#![no_std]

extern crate alloc;

mod age_marker;
mod check;
mod circle;
mod electorate;
mod eligibility;
mod fencing;
#[cfg(any(doc, doctest))]
pub mod guide {
    //! How to drive the state machines, and what they promise to a driver.
    //!
    #![doc = include_str!("guide.md")]
    use crate::*;
}
mod keep_alive;
mod lease;
mod node;
mod owed_release;
mod owner_rule;
mod owner_watch;
mod permits;
mod quarantine;
mod quorum;
mod reply;
mod retry;
mod round;
#[cfg(test)]
mod said;
mod sighting;
mod tally;
mod timestamp;
mod token;
mod ttl;
mod validity;
mod voter;

pub use age_marker::AgeMarker;
pub use check::{Check, Checks};
pub use circle::{MemberList, MemberReport, Owner, Tenure};
pub use electorate::{Admission, Electorate, Exclusion, Identity, NodeKind};
pub use eligibility::Eligibility;
pub use fencing::FencingToken;
pub use keep_alive::{KeepAlive, KeepAliveError};
pub use lease::{
    Access, End, Event, ExpiryAnomaly, Lease, LeaseConfig, LossReason, Operation, RoundId, Share,
    Status, Transmit,
};
pub use node::{NodeId, NodeSet};
pub use owed_release::{OwedRelease, SetRequestState};
pub use owner_rule::OwnerRule;
pub use owner_watch::Rivals;
pub use permits::{Permits, PermitsError, Slot, SlotSet};
pub use quarantine::Quarantine;
pub use quorum::{Quorum, QuorumError};
pub use reply::Reply;
pub use retry::{RetrySchedule, RetryScheduleError};
pub use round::{AcquireFailure, ReleaseVerdict};
pub use sighting::{MemberId, Origin, Replication, ReplicationId, RunId, ServerRole, Sighting};
pub use timestamp::Timestamp;
pub use token::{Nonce, Token};
pub use ttl::{Ttl, TtlError};
pub use validity::{Drift, Validity, ValidityError};
pub use voter::{Voter, Withdrawal};
