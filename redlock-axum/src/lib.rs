#![doc = include_str!("../README.md")]

mod key;
mod layer;
mod locked;
#[cfg(feature = "utoipa")]
mod openapi;
mod problem;
mod rejection;
mod response_service;
mod service;

pub use key::{
    BodyLimit, CompositeKey, KeyPart, RequestKey, extension, header, idempotency_key, json_field,
    key, matched_path, path, query, typed,
};
pub use layer::LockLayer;
pub use locked::{LockLost, Locked, LockedRejection};
#[cfg(feature = "utoipa")]
pub use openapi::LockResponses;
pub use problem::Problem;
pub use service::LockService;

pub use redlock_tokio;
pub use redlock_tower::{
    self, CallerDeadline, ExtractKey, Extracted, IntoKey, KeyRejection, LockRequest, OnCancel,
    OnLost, TaskTracker,
};

/// The requests that the layer sees.
pub type Request = axum::extract::Request;
