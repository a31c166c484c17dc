//! Requests to routes behind a layer, and the responses.

mod bodies;
mod keys;
mod logs;
mod nested;
mod read_write;
mod responses;
mod routers;
mod serve;
mod streams;
#[path = "../support/mod.rs"]
mod support;
