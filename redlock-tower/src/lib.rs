//! A Tower layer that serialises calls by key: calls for the same resource run one at a time, across all processes that
//! use the same nodes.
//!
//! The lock is a distributed lock over Redis masters ([`redlock_tokio`]). The layer works with any request, HTTP or
//! not. For axum routes, use `redlock-axum`.
//!
//! ```
//! use redlock_tower::LockLayer;
//! # use redlock_tokio::Redlock;
//! # use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
//! # let redlock = Redlock::embedded().await?;
//! let service = ServiceBuilder::new()
//!     .layer(LockLayer::new(redlock, |account: &u64| *account).prefix("account:"))
//!     .service_fn(async |account: u64| {
//!         // .. no other call works on this account now ..
//!         Ok::<_, std::io::Error>(account)
//!     });
//! assert_eq!(service.oneshot(7).await?, 7);
//! # Ok(())
//! # }
//! ```
//!
//! [`LockLayer`] has the options, [`ExtractKey`] finds the key of a request, and [`Locked`] is the lock, for the inner
//! service. A call that gets no lock fails with a [`CallError`]. The [`guide`] has the rest.
//!
//! # Features
//!
//! - `http`: a lock that lasts until the end of the response's body, and the caller's deadline from its headers.
//! - `tonic`: gRPC services keep their names, and refusals become statuses.

// Labels on docs.rs say which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A run must repeat itself if a test gives the seed and the clocks.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(any(doc, doctest))]
pub mod guide {
    //! How to use the layer, from what callers see to what it costs.
    //!
    #![doc = include_str!("guide.md")]
    use crate::*;
    use redlock_tokio::{Key, LockOptions};
}
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
