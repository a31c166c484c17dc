#![doc = include_str!("../README.md")]

mod error;
mod future;
mod key;
mod layer;
mod service;
mod share;

pub use error::LockError;
pub use future::ResponseFuture;
pub use key::{BoxError, ExtractKey, IntoKey, KeyRejection};
pub use layer::LockLayer;
pub use service::LockService;
pub use share::ShareHold;

pub use redlock_tokio;
