// On docs.rs the names in the README link to the items, by these definitions: the first definition of a link counts.
// Elsewhere the README's own definitions count.
//! [`ExtractKey`]: crate::ExtractKey
//! [`Key::parts`]: redlock_tokio::Key::parts
//! [`Key`]: redlock_tokio::Key
//! [`CallError`]: crate::CallError
//! [`LockLayer::check`]: crate::LockLayer::check
//! [`LockLayer::detached`]: crate::LockLayer::detached
//! [`LockLayer::fail_open`]: crate::LockLayer::fail_open
//! [`LockLayer::fenced`]: crate::LockLayer::fenced
//! [`LockLayer::max_keys`]: crate::LockLayer::max_keys
//! [`LockLayer::options`]: crate::LockLayer::options
//! [`LockLayer::permits`]: crate::LockLayer::permits
//! [`LockLayer::prefix`]: crate::LockLayer::prefix
//! [`LockLayer::run`]: crate::LockLayer::run
//! [`LockLayer::share_hold`]: crate::LockLayer::share_hold
//! [`LockLayer::wait`]: crate::LockLayer::wait
//! [`LockLayer`]: crate::LockLayer
//! [`LockOptions`]: redlock_tokio::LockOptions
//! [`LockRequest::fenced`]: crate::LockRequest::fenced
//! [`LockRequest::permits`]: crate::LockRequest::permits
//! [`LockRequest::read`]: crate::LockRequest::read
//! [`LockRequest::wait_at_most`]: crate::LockRequest::wait_at_most
//! [`LockRequest::write`]: crate::LockRequest::write
//! [`LockRequest`]: crate::LockRequest
//! [`Locked`]: crate::Locked
//! [`OnCancel::Expire`]: crate::OnCancel::Expire
//! [`OnLost::Cancel`]: crate::OnLost::Cancel
//! [`OnLost::Fail`]: crate::OnLost::Fail
#![cfg_attr(feature = "http", doc = "[`CallerDeadline`]: crate::CallerDeadline")]
#![cfg_attr(feature = "tonic", doc = "[`GrpcStatusLayer`]: crate::GrpcStatusLayer")]
#![cfg_attr(
    feature = "http",
    doc = "[`LockLayer::hold_until_body_end`]: crate::LockLayer::hold_until_body_end"
)]
//!
#![doc = include_str!("../README.md")]
// Labels on docs.rs say which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A run must repeat itself if a test gives the seed and the clocks.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "http")]
mod body;
mod call_guard;
#[cfg(feature = "http")]
mod caller_deadline;
mod error;
mod fail_open;
#[cfg(feature = "tonic")]
mod grpc;
mod key;
mod key_rejection;
mod layer;
mod lock_request;
mod locked;
mod mutex;
mod on_cancel;
mod on_lost;
mod rules;
mod service;

#[cfg(feature = "http")]
pub use body::{HoldBody, HoldBodyLayer, HoldBodyService};
#[cfg(feature = "http")]
pub use caller_deadline::CallerDeadline;
pub use error::{CallError, Refusal};
#[cfg(feature = "tonic")]
pub use grpc::{GrpcStatusLayer, GrpcStatusService};
pub use key::{ExtractKey, Extracted, IntoKey};
pub use key_rejection::{BoxError, KeyRejection};
pub use layer::LockLayer;
pub use lock_request::LockRequest;
pub use locked::{Locked, ShareHold};
pub use on_cancel::OnCancel;
pub use on_lost::OnLost;
pub use service::LockService;

pub(crate) use call_guard::CallGuard;

pub use redlock_tokio;
pub use tokio_util::task::TaskTracker;
