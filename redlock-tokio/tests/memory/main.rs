//! Locks over nodes in memory, most of them on a paused clock.

#[macro_use]
#[path = "../support/refused.rs"]
mod refused;

mod costs;
mod election;
mod embedded;
mod events;
mod foreign_code;
mod handover;
#[path = "../judge/judge.rs"]
mod judge;
mod judging;
mod lanes;
mod later_release;
mod lines;
mod lock_future;
mod logging;
mod misbehaving;
#[cfg(feature = "metrics")]
mod observability;
mod observers;
mod odd_node;
mod once;
mod outages;
mod own_changes;
mod permits;
mod probing;
mod quarantine;
mod readers;
mod releases;
mod searching;
mod several_keys;
#[path = "../support/mod.rs"]
mod support;
mod transfer;
mod waiting;
mod weight;
