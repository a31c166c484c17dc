//! Requests to routes behind a layer, and the responses.

mod bodies;
mod fresh_nodes;
mod guide;
mod json;
mod keys;
mod limits;
mod locked;
mod logs;
mod nested;
mod read_write;
mod responses;
mod routers;
mod serve;
mod spellings;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod wire_key;
