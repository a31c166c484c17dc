//! The example programs, as a user runs them.

mod rediss;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod to_their_end;
