#![doc = include_str!("../README.md")]

#[cfg(feature = "http")]
mod body;
mod error;
mod future;
mod held_lock;
mod key;
mod layer;
mod lock_request;
mod mode;
mod on_lost;
mod release;
mod rules;
mod running;
mod service;
mod share;
mod telemetry;

#[cfg(feature = "http")]
pub use body::{AtBodyEnd, HoldBody};
pub use error::LockError;
pub use future::ResponseFuture;
pub use held_lock::{HeldLock, Holding};
pub use key::{BoxError, ExtractKey, Extracted, IntoKey, KeyRejection};
pub use layer::LockLayer;
pub use lock_request::LockRequest;
pub use mode::{Detached, DetachedFuture, Inline, InlineFuture, Mode};
pub use on_lost::OnLost;
pub use release::{AtHead, Release};
pub use running::Running;
pub use service::LockService;
pub use share::ShareHold;

pub use redlock_tokio;
pub use tokio_util::task::TaskTracker;
