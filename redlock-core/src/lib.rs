// On GitHub the names in the README lead to docs.rs and to files. Here they lead to the items of this version.
//! [`Drift`]: crate::Drift
//! [`Electorate`]: crate::Electorate
//! [`Electorate::handle_connection`]: crate::Electorate::handle_connection
//! [`Electorate::handle_inspection`]: crate::Electorate::handle_inspection
//! [`Electorate::handle_owner_connection`]: crate::Electorate::handle_owner_connection
//! [`Electorate::handle_report`]: crate::Electorate::handle_report
//! [`Electorate::needs_history_age`]: crate::Electorate::needs_history_age
//! [`Event`]: crate::Event
//! [`FencingToken`]: crate::FencingToken
//! [`AgeMarker`]: crate::AgeMarker
//! [`KeepAlive`]: crate::KeepAlive
//! [`Lease`]: crate::Lease
//! [`Lease::acquire_fenced`]: crate::Lease::acquire_fenced
//! [`Lease::adopt`]: crate::Lease::adopt
//! [`Lease::claim`]: crate::Lease::claim
//! [`Lease::extend_for`]: crate::Lease::extend_for
//! [`Lease::give`]: crate::Lease::give
//! [`Lease::handle_timeout`]: crate::Lease::handle_timeout
//! [`Lease::handle_withdrawal`]: crate::Lease::handle_withdrawal
//! [`Lease::longest_ttl`]: crate::Lease::longest_ttl
//! [`Lease::poll_timeout`]: crate::Lease::poll_timeout
//! [`Lease::set_share`]: crate::Lease::set_share
//! [`Nonce`]: crate::Nonce
//! [`OwedRelease`]: crate::OwedRelease
//! [`OwnerWatch`]: crate::OwnerWatch
//! [`Quarantine`]: crate::Quarantine
//! [`Quorum`]: crate::Quorum
//! [`Reply::Refused`]: crate::Reply::Refused
//! [`Reply::Unknown`]: crate::Reply::Unknown
//! [`RetrySchedule`]: crate::RetrySchedule
//! [`SetRequestState`]: crate::SetRequestState
//! [`Transmit::access`]: crate::Transmit::access
//! [`Ttl`]: crate::Ttl
//! [`Validity`]: crate::Validity
//! [`Withdrawal`]: crate::Withdrawal
//! [`PROOF.md`]: crate::proof
//!
#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;

mod age_marker;
mod check;
mod circle;
mod electorate;
mod eligibility;
mod fencing;
mod keep_alive;
mod lease;
mod node;
mod owed_release;
mod owner_rule;
mod owner_watch;
mod permits;
/// [`Lease`]: crate::Lease
/// [`Quarantine`]: crate::Quarantine
/// [`OwnerWatch`]: crate::OwnerWatch
///
#[cfg(doc)]
#[doc = include_str!("../PROOF.md")]
pub mod proof {}
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
pub use owner_watch::{OwnerWatch, Rivals};
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
