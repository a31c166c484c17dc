#![doc = include_str!("../README.md")]

#[cfg(feature = "http")]
mod body;
mod call_guard;
#[cfg(feature = "http")]
mod caller_deadline;
mod error;
mod fail_open;
mod future;
#[cfg(feature = "tonic")]
mod grpc;
mod key;
mod layer;
mod lock_request;
mod locked;
mod mode;
mod mutex;
mod on_cancel;
mod on_lost;
mod release;
mod rules;
mod running;
mod service;
mod share;
mod telemetry;
mod under_lock;
mod waiting;

#[cfg(feature = "http")]
pub use body::{AtBodyEnd, HoldBody};
#[cfg(feature = "http")]
pub use caller_deadline::CallerDeadline;
pub use error::{LockError, Refusal};
pub use future::ResponseFuture;
#[cfg(feature = "tonic")]
pub use grpc::{GrpcStatusLayer, GrpcStatusService};
pub use key::{BoxError, ExtractKey, Extracted, IntoKey, KeyRejection};
pub use layer::LockLayer;
pub use lock_request::LockRequest;
pub use locked::Locked;
pub use mode::{Detached, Inline, Mode};
pub use on_cancel::OnCancel;
pub use on_lost::OnLost;
pub use release::{AtHead, Release};
pub use service::LockService;
pub use share::ShareHold;

pub(crate) use call_guard::CallGuard;
pub(crate) use running::Running;

pub use redlock_tokio;
pub use tokio_util::task::TaskTracker;
