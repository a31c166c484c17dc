//! Locks over real servers: what they promise, the [fault matrix](faults), [Sentinel groups and clusters](topologies), and
//! the [kit](kit) that starts the servers.

#[macro_use]
#[path = "../support/refused.rs"]
mod refused;

mod conformance;
mod connecting;
mod credentials;
mod extending;
mod faults;
mod fencing;
mod fleet;
mod kit;
mod learning;
mod lines;
mod minimal_rights;
mod operations;
mod other_clients;
mod own_connections;
#[path = "../../benches/shared/packages.rs"]
#[allow(dead_code, reason = "other programs fetch packages from pip, too")]
mod packages;
mod promises;
mod readers;
mod saying_less;
mod several_keys;
mod starting;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls-rustls")]
mod tls;
mod topologies;
mod waking;
mod warnings;
mod wire;

/// The result of what has no error of its own.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
