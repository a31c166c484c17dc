//! The engine drives leases: it brings their requests to the nodes, and the answers of the nodes and the time to them.
//!
//! Knows neither guards nor the errors that callers see.

pub(crate) mod forced_release;
mod hashed_table;
pub(crate) mod lane;
pub(crate) mod line;
mod micros;
pub(crate) mod queue;
pub(crate) mod requests;
mod shrink;
pub(crate) mod slot_table;
pub(crate) mod timers;
pub(crate) mod wall_clock;
pub(crate) mod warning;
