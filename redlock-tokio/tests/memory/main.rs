//! Locks over nodes in memory, most of them on a paused clock.

mod authorities;
mod election;
mod embedded;
mod events;
mod first_refusals;
mod foreign_code;
mod handover;
mod lanes;
mod later_release;
mod lists;
mod lock_future;
mod logging;
mod misbehaving;
mod observers;
mod odd_node;
mod once;
mod outages;
mod own_changes;
mod peak;
mod permits;
mod probing;
mod quarantine;
mod readers;
mod refusals;
mod releases;
mod reservations;
mod several_keys;
#[path = "../support/mod.rs"]
mod support;
mod transfer;
mod waiting;
mod weight;
