//! Locks over real servers.

mod acquisitions;
mod connecting;
mod credentials;
mod extending;
mod fencing;
mod fencing_counters;
mod minimal_rights;
mod own_connections;
mod promises;
mod saying_less;
mod starting;
#[path = "../support/mod.rs"]
mod support;
mod turns;
mod waking;
mod warnings;
mod wire;
