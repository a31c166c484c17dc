//! The worlds with an authority, and each rule once with the rule broken.

use super::{
    setup::{Authority, Failovers, Mutation::*, OwnerSetup},
    world::Faults,
};

const FAILOVER: OwnerSetup = OwnerSetup::FAILOVER;

/// One failover, and nothing else.
const ONE: Faults = FAILOVER.faults;

const TWO: Faults = Faults {
    failovers: 2,
    ..ONE
};

/// One failover, and each client reaches two of the three members. Worlds with more faults would be too large
/// otherwise.
const NARROW: OwnerSetup = OwnerSetup {
    name: "",
    are_alike: false,
    lists: [&[0, 1], &[1, 2]],
    ..FAILOVER
};

/// Clients that have not heard of any owner, and members that tell for how long they know theirs.
const AGES: OwnerSetup = OwnerSetup {
    name: "ages, a restart of a member",
    watched: [true, false],
    ages: true,
    faults: Faults { restarts: 1, ..ONE },
    reaches: &[
        "the new owner has voted",
        "the old owner has voted after the failover",
        "connected to the old owner after the failover",
        "an owner had not settled",
    ],
    ..NARROW
};

const MARKERS: OwnerSetup = OwnerSetup {
    name: "markers, a client that comes later",
    watched: [true, false],
    markers: true,
    begin_by: [3, 4],
    faults: Faults { marks: 1, ..ONE },
    reaches: &[
        "the new owner has voted",
        "the old owner has voted after the failover",
        "voted by a marker",
    ],
    ..NARROW
};

/// The owner becomes a replica and the owner again.
const FAILBACK: OwnerSetup = OwnerSetup {
    name: "a failover and back",
    fail_over_at: [1..=1, 1..=2],
    begin_by: [2, 4],
    faults: TWO,
    reaches: &[
        "the new owner has voted",
        "the old owner has voted after the failover",
        "the first owner has voted again",
    ],
    ..NARROW
};

/// The failback comes when no confirmation from before the failover counts any more. Then the rule of owners
/// needs no other rule.
const SLOW_FAILBACK: OwnerSetup = OwnerSetup {
    name: "a slow failback, promotions ignored",
    sees_promotions: false,
    fail_over_at: [1..=1, 3..=3],
    begin_by: [3, 5],
    ..FAILBACK
};

const LATE_ANSWERS: OwnerSetup = OwnerSetup {
    name: "late answers",
    faults: Faults {
        late_answers: 1,
        ..ONE
    },
    ..NARROW
};

const STALLED: OwnerSetup = OwnerSetup {
    name: "drift within the allowance",
    ttl: 2,
    drift: 1,
    begin_by: [2, 5],
    faults: Faults { stalls: 1, ..ONE },
    ..NARROW
};

/// The members are told to watch another server, and then the first one again, all in one epoch. The servers keep
/// their keys.
const ANEW: OwnerSetup = OwnerSetup {
    name: "sentinels whose epochs begin anew",
    authority: Authority::Sentinels,
    epochs_begin_anew: true,
    ages: true,
    // The first client votes for the second server at the earliest when that has settled.
    fail_over_at: [1..=1, 3..=3],
    begin_by: [3, 4],
    reaches: &["the new owner has voted", "an owner had not settled"],
    ..SLOW_FAILBACK
};

/// The same for a client that comes later, and finds the marker of the first tenure.
const ANEW_MARKED: OwnerSetup = OwnerSetup {
    name: "sentinels whose epochs begin anew, a client that comes later",
    watched: [true, false],
    markers: true,
    ..ANEW
};

/// Addresses of one client have come to lead to a larger authority, and it reaches some members of both.
const STRANGERS: OwnerSetup = OwnerSetup {
    name: "addresses that lead to another authority",
    servers: 3,
    members: 7,
    strangers: 4,
    lists: [&[0, 1, 2], &[0, 1, 3, 4, 5, 6]],
    polls: [&[2], &[2, 4]],
    begin_by: [2, 3],
    faults: Faults {
        failovers: 0,
        ..ONE
    },
    reaches: &["two authorities were heard", "a confirmation expired"],
    ..NARROW
};

/// The same when that client starts, and hears all addresses before it votes.
const STRANGERS_AT_THE_START: OwnerSetup = OwnerSetup {
    name: "addresses that lead to another authority at the start",
    watched: [true, false],
    polls: [&[2], &[6]],
    reaches: &["two authorities were heard"],
    ..STRANGERS
};

/// The same when the answers come one by one, in any order and at any time. Two addresses lead to the other
/// authority, and one of them to the own one.
const START: OwnerSetup = OwnerSetup {
    name: "a start between two authorities, answers in any order",
    members: 6,
    strangers: 3,
    lists: [&[0, 1, 2], &[0, 3, 4]],
    polls: [&[2], &[3]],
    scatters: [false, true],
    ages: true,
    ..STRANGERS_AT_THE_START
};

/// One client lists members 1 to 3, and the other 2 to 4. They may be three shards of a cluster, of which one has a
/// replica: each client is cut off from one of the two that may own the slot.
const LISTS: OwnerSetup = OwnerSetup {
    name: "other lists, four members",
    members: 4,
    lists: [&[0, 1, 2], &[1, 2, 3]],
    polls: [&[3]; 2],
    ..NARROW
};

/// A member loses its state, and one client reaches no other that has turned.
const SET_UP_ANEW: OwnerSetup = OwnerSetup {
    name: "a member is set up anew",
    polls: [&[1, 2], &[2]],
    fewest_members: 3,
    begin_by: [4, 4],
    faults: Faults { renewals: 1, ..ONE },
    ..NARROW
};

/// Servers that share one log, according to their vendor. The locks survive the failover.
const LOSSLESS: OwnerSetup = OwnerSetup {
    name: "failovers that lose nothing, nobody settles",
    failovers: Failovers::LoseNothing,
    settles: false,
    ttl: 2,
    begin_by: [2, 3],
    reaches: &[
        "the new owner has voted at once",
        "the old owner has voted after the failover",
        "a confirmation expired",
    ],
    ..FAILOVER
};

/// Returns all configurations: what must hold, then what must not.
pub(crate) fn all() -> Vec<OwnerSetup> {
    vec![
        FAILOVER,
        AGES,
        MARKERS,
        FAILBACK,
        SLOW_FAILBACK,
        ANEW,
        ANEW_MARKED,
        STRANGERS,
        STRANGERS_AT_THE_START,
        START,
        OwnerSetup {
            name: "the same with a list of two",
            members: 4,
            strangers: 1,
            lists: [&[0, 1, 2], &[0, 3]],
            polls: [&[2]; 2],
            ..START
        },
        OwnerSetup {
            name: "the same with a list of five",
            lists: [&[0, 1, 2], &[0, 1, 3, 4, 5]],
            polls: [&[2], &[5]],
            ..START
        },
        OwnerSetup {
            name: "addresses that lead to another authority, answers in any order",
            lists: [&[0, 1, 2], &[0, 1, 3, 4, 5]],
            polls: [&[2], &[5]],
            watched: [true, true],
            reaches: &[
                "two authorities were heard",
                "voted beside another authority",
            ],
            ..START
        },
        OwnerSetup {
            name: "a start during a failover, answers in any order",
            scatters: [false, true],
            begin_by: [2, 3],
            faults: ONE,
            ..AGES
        },
        OwnerSetup {
            name: "two failovers, epochs that collide",
            servers: 3,
            begin_by: [2, 3],
            faults: TWO,
            ..NARROW
        },
        LATE_ANSWERS,
        OwnerSetup {
            name: "a late SET",
            faults: Faults {
                late_sets: 1,
                ..ONE
            },
            ..NARROW
        },
        STALLED,
        OwnerSetup {
            name: "a window longer than the ttl",
            window: 2,
            begin_by: [3, 4],
            ..NARROW
        },
        OwnerSetup {
            name: "renewed",
            ttl: 2,
            max_hold: 2,
            begin_by: [1, 4],
            reaches: &["the new owner has voted", "extended after the failover"],
            ..NARROW
        },
        LISTS,
        SET_UP_ANEW,
        LOSSLESS,
        OwnerSetup {
            name: "failovers that lose nothing, renewed",
            max_hold: 2,
            begin_by: [1, 3],
            reaches: &[
                "the new owner has voted at once",
                "extended after the failover",
            ],
            ..LOSSLESS
        },
        OwnerSetup {
            name: "failovers that lose nothing, and back",
            fail_over_at: FAILBACK.fail_over_at,
            faults: TWO,
            reaches: FAILBACK.reaches,
            are_alike: false,
            lists: NARROW.lists,
            ..LOSSLESS
        },
        OwnerSetup {
            lists: [&[0, 1], &[2, 3]],
            polls: [&[2]; 2],
            ..LISTS
        }
        .broken(ListedMembersOnly, "a majority of the listed members"),
        STRANGERS_AT_THE_START.broken(
            StrangersCounted,
            "members of two authorities counted together",
        ),
        START.broken(
            JudgedOneByOne,
            "the first majority that answers is believed",
        ),
        OwnerSetup {
            lists: [&[0, 2], &[1, 3]],
            polls: [&[2]; 2],
            begin_by: [4, 4],
            ..LISTS
        }
        .broken(MastersOnly, "a majority of the masters"),
        FAILOVER.broken(WatchNotRestarted, "the watch goes on in another tenure"),
        FAILOVER.broken(LongerWindow, "a longer window than others"),
        OwnerSetup {
            ttl: 2,
            begin_by: [2, 4],
            ..FAILOVER
        }
        .broken(SettledTooSoon, "settled before the longest ttl"),
        OwnerSetup {
            failovers: Failovers::LoseKeys,
            ..LOSSLESS
        }
        .control("nobody settles, and failovers lose keys"),
        OwnerSetup {
            failovers: Failovers::CopyKeys,
            ..LOSSLESS
        }
        .control("nobody settles, and the old owner goes on"),
        OwnerSetup {
            drift: 0,
            ..STALLED
        }
        .control("no drift allowance"),
        LATE_ANSWERS.broken(DatedByTheAnswer, "dated by the answer"),
        FAILOVER.broken(NeverLapses, "a confirmation never expires"),
        OwnerSetup {
            ages: true,
            lists: [&[1, 2]; 2],
            begin_by: [3, 3],
            ..SLOW_FAILBACK
        }
        .broken(AgeOfTheServer, "ages of servers, not of tenures"),
        OwnerSetup {
            markers: true,
            ..SLOW_FAILBACK
        }
        .broken(MarkerWithoutEpoch, "markers without the epoch"),
        OwnerSetup {
            authority: Authority::Cluster,
            ..ANEW
        }
        .control("epochs that begin anew, and a watch that goes on"),
        OwnerSetup {
            authority: Authority::Cluster,
            ..ANEW_MARKED
        }
        .control("epochs that begin anew, and markers"),
        OwnerSetup {
            begin_by: [4, 4],
            ..MARKERS
        }
        .broken(MarkedTooSoon, "a marker without a majority"),
        OwnerSetup {
            sees_promotions: false,
            ..FAILBACK
        }
        .control("promotions within a window ignored"),
        FAILOVER.broken(ConnectionKept, "a connection kept over a failover"),
        OwnerSetup {
            fewest_members: 1,
            ..SET_UP_ANEW
        }
        .control("a member that is alone is a majority"),
        OwnerSetup {
            faults: Faults { returns: 1, ..ONE },
            ..NARROW
        }
        .control("a member goes back"),
    ]
}
