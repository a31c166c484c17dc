//! Locks over nodes in memory, most of them on a paused clock.

mod authorities;
mod embedded;
mod handover;
mod lanes;
mod lock_future;
mod logging;
mod misbehaving;
mod odd_node;
mod quarantine;
mod releases;
mod reservations;
mod several_keys;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
