//! The example programs, as a user runs them.

mod five_nodes;
mod leader;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod to_their_end;
