//! The names of the events that processes count.

use crate::topology::Topology;

/// Events that may happen, beside [`SOMETIMES`]. An event with another name is a finding: an error that this run
/// cannot cause.
const OTHERS: [&str; 24] = [
    "extension: lost",
    "extension: max hold",
    "extension: no quorum",
    "foreign: acquired",
    "foreign: extension: done",
    "foreign: extension: failed",
    "foreign: not acquired",
    "foreign: several keys",
    "foreign: writes",
    "foreign: writes refused because they were late",
    "hang", // a finding of its own
    "lost: KeysLost",
    "lost: VotesWithdrawn",
    "not acquired: NoQuorum",
    "not acquired: Quarantined",
    "not acquired: TooSlow",
    "readers that joined",
    "release: HandedOver",
    "release: NotHeld",
    "release: Unconfirmed",
    "tokens refused within the validity", // a finding of its own
    "torn reads",                         // a finding of its own
    "torn reads after a loss",
    "writes not tried after a loss",
];

/// Events that each conclusive run must have seen. Every minute brings several of each.
const SOMETIMES: [&str; 20] = [
    "acquired",
    "cancelled",
    "downgrades",
    "extension: done",
    "fenced",
    "lost: Expired",
    "lost: MaxHold",
    "not acquired: Contended",
    "permit of another slot",
    "permit of the first slot",
    "reads",
    "release: Released",
    "several keys",
    "tokens refused after a loss",
    "work cancelled",
    "writers",
    "writes",
    "writes by fence",
    "writes refused because of a larger token",
    "writes refused because they were late",
];

/// More such events over independent masters. The others are a matter of luck: at most a minority of the nodes has a
/// fault, so a majority refuses or misses something only if the machine is busy. A release that is awaited is rarely a
/// handover.
const SOMETIMES_OVER_MASTERS: [&str; 1] = ["writes not tried after a loss"];

/// More such events over a Sentinel group. Failovers lose keys, and each is followed by a quarantine.
const SOMETIMES_OVER_SENTINEL: [&str; 6] = [
    "extension: lost",
    "extension: no quorum",
    "lost: KeysLost",
    "not acquired: NoQuorum",
    "not acquired: Quarantined",
    "writes not tried after a loss",
];

/// More such events over a cluster. A failover concerns one voter of three, so a lock is seldom lost by it.
const SOMETIMES_OVER_CLUSTER: [&str; 3] = [
    "extension: no quorum",
    "not acquired: NoQuorum",
    "not acquired: Quarantined",
];

/// Returns the events that a conclusive run over this topology must have seen and has not.
pub(crate) fn unseen(topology: Topology, has_seen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let more: &[&str] = match topology {
        Topology::Masters => &SOMETIMES_OVER_MASTERS,
        Topology::Sentinel => &SOMETIMES_OVER_SENTINEL,
        Topology::Cluster => &SOMETIMES_OVER_CLUSTER,
    };
    let needed = SOMETIMES.iter().chain(more).copied();
    needed.filter(|it| !has_seen(it)).collect()
}

/// Returns whether this event may happen.
pub(crate) fn is_known(name: &str) -> bool {
    SOMETIMES.contains(&name) || OTHERS.contains(&name)
}
