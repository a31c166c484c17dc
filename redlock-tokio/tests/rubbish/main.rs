//! Servers that send rubbish, and text that no parser expects.

mod any_bytes;
mod memory;
#[path = "../support/mod.rs"]
mod support;
mod votes;
