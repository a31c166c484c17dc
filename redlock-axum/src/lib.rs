//! A layer that serialises axum handlers by resource: requests for the same resource run one at a time, across all
//! processes that use the same nodes.
//!
//! The lock is a distributed lock over Redis masters ([`redlock_tokio`]).
//!
//! ```no_run
//! use axum::{Router, extract::Path, routing::post};
//! use redlock_axum::{LockLayer, LockLost, Locked, key, path};
//! use redlock_tokio::Redlock;
//!
//! async fn buy(event: Path<String>, locked: Locked) -> Result<String, LockLost> {
//!     // .. read the stock: no other request does so for this event now ..
//!     locked.ensure()?; // still held, just before the step that counts
//!     // .. write the stock ..
//!     Ok(format!("a ticket for {}", event.0))
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = Redlock::connect("redis://a,redis://b,redis://c").await?;
//! let app: Router = Router::new()
//!     .route("/events/{event}/tickets", post(buy))
//!     .route_layer(LockLayer::new(redlock, key("event", path("event"))));
//! # Ok(())
//! # }
//! ```
//!
//! [`LockLayer`] has the options of a route, and [`Locked`] is the lock, for its handler. The functions [`key()`],
//! [`path()`], [`header()`], [`query()`], [`json_field()`] and [`typed()`] say what is locked. The layer answers each
//! refusal with a response, a [`Problem`]. The [`guide`] explains what the client sees, keys, bodies, the place of the
//! layer, fencing, shutdown and tests.

// Labels on docs.rs say which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(doc, doctest))]
pub mod guide {
    //! How to use the layer, from what callers see to what it costs.
    //!
    #![doc = include_str!("guide.md")]
    use crate::*;
    use redlock_tokio::{
        Hold, Key, LockError, LockOptions, Redlock, RedlockBuilder, RedlockRwLock,
    };
}
mod key;
mod layer;
mod locked;
mod problem;
mod rejection;
mod service;

pub use key::{
    BodyLimit, CompositeKey, KeyPart, RequestKey, header, json_field, key, matched_path, path,
    query, typed,
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
