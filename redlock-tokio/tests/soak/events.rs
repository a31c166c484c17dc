//! The names of the events that processes count.

use crate::topology::Topology::{self, Cluster, Masters, Sentinel};

const EVERYWHERE: &[Topology] = &[Masters, Sentinel, Cluster];
const ANYWHERE: &[Topology] = &[];

/// The events that may happen, with the topologies over which each conclusive run must have seen them. An event with
/// another name is a finding: an error that this run cannot cause.
///
/// Every minute brings several of each that must be seen. The others are a matter of luck. Over independent masters, at
/// most a minority of the nodes has a fault, so a majority refuses or misses something only if the machine is busy. A
/// failover of a group loses keys, and a quarantine follows. A failover of a cluster concerns one voter of three, so a
/// lock is seldom lost by it. A release that is awaited is rarely a handover.
const EVENTS: [(&str, &[Topology]); 38] = [
    ("acquired", EVERYWHERE),
    ("cancelled", EVERYWHERE),
    ("downgrades", EVERYWHERE),
    ("extension: done", EVERYWHERE),
    ("extension: Lost", &[Sentinel]),
    ("extension: MaxHold", ANYWHERE),
    ("extension: NoQuorum", &[Sentinel, Cluster]),
    ("fenced", EVERYWHERE),
    ("hang", ANYWHERE), // a finding of its own
    ("lost: Expired", EVERYWHERE),
    ("lost: KeysLost", &[Sentinel]),
    ("lost: MaxHold", EVERYWHERE),
    ("lost: VotesWithdrawn", ANYWHERE),
    ("not acquired: Contended", EVERYWHERE),
    ("not acquired: NoQuorum", &[Sentinel, Cluster]),
    ("not acquired: NotPolled", ANYWHERE),
    ("not acquired: Quarantined", &[Sentinel, Cluster]),
    ("not acquired: TooSlow", ANYWHERE),
    ("permit of another slot", EVERYWHERE),
    ("permit of the first slot", EVERYWHERE),
    ("readers that joined", ANYWHERE),
    ("reads", EVERYWHERE),
    ("release: HandedOver", ANYWHERE),
    ("release: NotHeld", ANYWHERE),
    ("release: Released", EVERYWHERE),
    ("release: Unconfirmed", ANYWHERE),
    ("several keys", EVERYWHERE),
    ("tokens refused after a loss", EVERYWHERE),
    ("tokens refused within the validity", ANYWHERE), // a finding of its own
    ("torn reads", ANYWHERE),                         // a finding of its own
    ("torn reads after a loss", ANYWHERE),
    ("work cancelled", EVERYWHERE),
    ("writers", EVERYWHERE),
    ("writes", EVERYWHERE),
    ("writes by fence", EVERYWHERE),
    ("writes not tried after a loss", &[Masters, Sentinel]),
    ("writes refused because of a larger token", EVERYWHERE),
    ("writes refused because they were late", EVERYWHERE),
];

/// Returns the events that a conclusive run over this topology must have seen and has not.
pub(crate) fn unseen(topology: Topology, has_seen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let is_unseen = |it: &&(&str, &[_])| it.1.contains(&topology) && !has_seen(it.0);
    let unseen = EVENTS.iter().filter(is_unseen);
    unseen.map(|(name, _)| *name).collect()
}

/// Returns whether this event may happen.
pub(crate) fn is_known(name: &str) -> bool {
    // Foreign clients fail as they do.
    name.starts_with("foreign: ") || EVENTS.iter().any(|(known, _)| *known == name)
}
