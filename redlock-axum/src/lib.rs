// On docs.rs the names in the README link to the items, by these definitions: the first definition of a link counts.
// Elsewhere the README's own definitions count.
//! [`BodyLimit::time`]: crate::BodyLimit::time
//! [`CallerDeadline`]: crate::CallerDeadline
//! [`Hold::is_reader`]: redlock_tokio::Hold::is_reader
//! [`Hold::fencing_token`]: redlock_tokio::Hold::fencing_token
//! [`Key::parts`]: redlock_tokio::Key::parts
//! [`KeyPart::map`]: crate::KeyPart::map
//! [`KeyPart::parse`]: crate::KeyPart::parse
//! [`KeyRejection`]: crate::KeyRejection
//! [`Key`]: redlock_tokio::Key
//! [`LockError`]: redlock_tokio::LockError
//! [`LockLayer::all_methods`]: crate::LockLayer::all_methods
//! [`LockLayer::body_limit`]: crate::LockLayer::body_limit
//! [`LockLayer::cancel_on_disconnect`]: crate::LockLayer::cancel_on_disconnect
//! [`LockLayer::check`]: crate::LockLayer::check
//! [`LockLayer::contended_status`]: crate::LockLayer::contended_status
//! [`LockLayer::fail_open`]: crate::LockLayer::fail_open
//! [`LockLayer::fenced`]: crate::LockLayer::fenced
//! [`LockLayer::hold_until_body_end`]: crate::LockLayer::hold_until_body_end
//! [`LockLayer::label`]: crate::LockLayer::label
//! [`LockLayer::max_hold`]: crate::LockLayer::max_hold
//! [`LockLayer::max_keys`]: crate::LockLayer::max_keys
//! [`LockLayer::methods`]: crate::LockLayer::methods
//! [`LockLayer::permits`]: crate::LockLayer::permits
//! [`LockLayer::prefix`]: crate::LockLayer::prefix
//! [`LockLayer::read_write`]: crate::LockLayer::read_write
//! [`LockLayer::rejection`]: crate::LockLayer::rejection
//! [`LockLayer::retry_after`]: crate::LockLayer::retry_after
//! [`LockLayer::stream_body`]: crate::LockLayer::stream_body
//! [`LockLayer::wait`]: crate::LockLayer::wait
//! [`LockRequest::read`]: crate::LockRequest::read
//! [`LockRequest::write`]: crate::LockRequest::write
//! [`LockRequest`]: crate::LockRequest
//! [`Locked::ensure`]: crate::Locked::ensure
//! [`Locked::into_owned`]: crate::Locked::into_owned
//! [`Locked::lost`]: crate::Locked::lost
//! [`Locked::release_early`]: crate::Locked::release_early
//! [`Locked`]: crate::Locked
//! [`OnCancel::Expire`]: crate::OnCancel::Expire
//! [`OnLost::Cancel`]: crate::OnLost::Cancel
//! [`OnLost::Fail`]: crate::OnLost::Fail
//! [`Problem::retry_after`]: crate::Problem::retry_after
//! [`Problem`]: crate::Problem
//! [`RedlockRwLock::read`]: redlock_tokio::RedlockRwLock::read
//! [`RedlockRwLock::write`]: redlock_tokio::RedlockRwLock::write
//! [`Redlock::shutdown`]: redlock_tokio::Redlock::shutdown
//! [`RedlockBuilder::max_ttl`]: redlock_tokio::RedlockBuilder::max_ttl
//! [`RedlockBuilder::prefix`]: redlock_tokio::RedlockBuilder::prefix
//! [`Redlock`]: redlock_tokio::Redlock
//! [`header("x-tenant")`]: crate::header()
//! [`fail_fast`]: redlock_tokio::LockOptions::fail_fast
//! [`idempotency_key()`]: crate::idempotency_key()
//! [`json_field("order.id", 4096)`]: crate::json_field()
//! [`matched_path()`]: crate::matched_path()
//! [`path("event")`]: crate::path()
//! [`path("order").parse::<u64>()`]: crate::KeyPart::parse
//! [`query("email").map(str::to_lowercase)`]: crate::KeyPart::map
//! [`typed(..)`]: crate::typed()
//!
#![doc = include_str!("../README.md")]
// Labels on docs.rs say which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod key;
mod layer;
mod locked;
mod problem;
mod rejection;
mod service;

pub use key::{
    BodyLimit, CompositeKey, KeyPart, RequestKey, header, idempotency_key, json_field, key,
    matched_path, path, query, typed,
};
pub use layer::LockLayer;
pub use locked::{LockLost, Locked, LockedRejection};
pub use problem::Problem;
pub use service::LockService;

pub use redlock_tokio;
pub use redlock_tower::{
    self, CallerDeadline, ExtractKey, Extracted, IntoKey, KeyRejection, LockRequest, OnCancel,
    OnLost, TaskTracker,
};

/// The requests of a [`LockLayer`]: those of axum.
pub type Request = axum::extract::Request;
