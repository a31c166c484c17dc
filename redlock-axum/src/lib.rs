#![doc = include_str!("../README.md")]

mod future;
mod key;
mod layer;
mod locked;
mod problem;
mod rejection;
mod service;

pub use future::ResponseFuture;
pub use key::{PathKey, path};
pub use layer::LockLayer;
pub use locked::{LockLost, Locked, NoLock};
pub use problem::Problem;
pub use service::LockService;

pub use redlock_tokio;
pub use redlock_tower::{self, ExtractKey, IntoKey, KeyRejection};
