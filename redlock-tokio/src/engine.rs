//! What drives leases: it brings what they send to the nodes, and what the nodes and the clock say to them.
//!
//! Knows neither guards nor the errors that callers see.

mod hashed_table;
pub(crate) mod lane;
pub(crate) mod lease_cell;
pub(crate) mod queue;
mod shrink;
pub(crate) mod timers;
pub(crate) mod turn_table;
pub(crate) mod turns;
pub(crate) mod wall_clock;
pub(crate) mod warning;
