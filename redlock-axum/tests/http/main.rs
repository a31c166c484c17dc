//! Requests to routes behind a layer, and the responses.

mod fenced;
mod fresh_nodes;
mod guide;
mod json;
mod keys;
mod locked;
mod logs;
#[cfg(feature = "utoipa")]
mod openapi;
mod responses;
mod routers;
mod serve;
mod streams;
#[path = "../support/mod.rs"]
mod support;
