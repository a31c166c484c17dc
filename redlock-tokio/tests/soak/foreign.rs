use std::{fmt, process::Command};

use serde::Serialize;

use crate::{
    Result, bed, clock, packages,
    settings::{Breakage, Settings},
    topology::{MAX_TTL, Topology},
};

/// A client of another implementation, which locks the same keys on the same nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Foreign {
    /// The package `redlock` of npm, over `ioredis`.
    NodeRedlock,
    /// The `Lock` of the package `redis` of pip, on a majority of the nodes.
    RedisPy,
}

/// The task of a foreign client, as one argument of its command line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ForeignOrder {
    nodes: Vec<String>,
    store: String,
    /// Whether the client locks at all.
    locks: bool,
    keys: usize,
    tasks: usize,
    max_ttl_ms: u64,
    longest_pause_ms: u64,
    /// By how many nanoseconds `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`.
    clock_ahead: String,
}

impl ForeignOrder {
    pub(crate) fn new(settings: &Settings, nodes: Vec<String>, store: String) -> Self {
        Self {
            nodes,
            store,
            locks: settings.breakage != Some(Breakage::Foreign),
            keys: bed::KEYS,
            tasks: 4,
            max_ttl_ms: MAX_TTL.as_millis() as u64,
            longest_pause_ms: settings.topology.longest_pause().as_millis() as u64,
            clock_ahead: clock::ahead_of_monotonic().to_string(),
        }
    }
}

impl Foreign {
    const ALL: [Self; 2] = [Self::NodeRedlock, Self::RedisPy];

    /// Returns the foreign clients of a run with the commands that start them. Installs their packages if they are
    /// missing. Prints the clients that cannot take part.
    pub(crate) fn at_hand(settings: &Settings) -> Vec<(Self, Command)> {
        let mut at_hand = Vec::new();
        let all = match settings.breakage {
            None | Some(Breakage::Foreign) => Self::ALL,
            Some(_) => return at_hand,
        };
        for foreign in all {
            let program = match settings.topology {
                Topology::Masters => foreign.program(),
                _ => Err("it does not know which server is a master".into()),
            };
            match program {
                Ok(program) => at_hand.push((foreign, program)),
                Err(error) => println!("NOT RUN: {foreign} because {error}"),
            }
        }
        at_hand
    }

    fn program(self) -> Result<Command> {
        packages::script(match self {
            Self::NodeRedlock => "tests/soak/foreign/node_redlock.cjs",
            Self::RedisPy => "tests/soak/foreign/redis_py.py",
        })
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeRedlock => "node-redlock",
            Self::RedisPy => "redis-py",
        })
    }
}
