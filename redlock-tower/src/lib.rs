#![doc = include_str!("../README.md")]

#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod caller_deadline;
mod error;
mod future;
#[cfg(feature = "tonic")]
mod grpc;
mod held_lock;
mod holding;
mod key;
mod layer;
mod lock_request;
mod mode;
mod on_cancel;
mod on_lost;
mod release;
mod rules;
mod running;
mod service;
mod share;
mod telemetry;
mod under_lock;

#[cfg(feature = "http")]
pub use body::{AtBodyEnd, HoldBody};
#[cfg(feature = "http")]
pub use caller_deadline::CallerDeadline;
pub use error::LockError;
pub use future::ResponseFuture;
#[cfg(feature = "tonic")]
pub use grpc::{GrpcStatusLayer, GrpcStatusService};
pub use held_lock::HeldLock;
pub use holding::Holding;
pub use key::{BoxError, ExtractKey, Extracted, IntoKey, KeyRejection};
pub use layer::LockLayer;
pub use lock_request::LockRequest;
pub use mode::{Detached, DetachedFuture, Inline, InlineFuture, Mode};
pub use on_cancel::OnCancel;
pub use on_lost::OnLost;
pub use release::{AtHead, Release};
pub use running::Running;
pub use service::LockService;
pub use share::ShareHold;

pub use redlock_tokio;
pub use tokio_util::task::TaskTracker;
