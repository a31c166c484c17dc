use std::process::Command;

use serde_json::json;

use crate::{
    bed, clock, packages,
    settings::{Breakage, Settings},
    topology::{MAX_TTL, Topology},
    worker::{Order, WRITE},
};

/// The clients of other implementations, which lock the same keys on the same nodes: the package `redlock` of npm, over
/// `ioredis`, and the `Lock` of the package `redis` of pip, on a majority of the nodes.
const CLIENTS: [(&str, &str); 2] = [
    ("node-redlock", "tests/soak/foreign/node_redlock.cjs"),
    ("redis-py", "tests/soak/foreign/redis_py.py"),
];

/// Returns the task of a foreign client, as one argument of its command line.
pub(crate) fn task(order: &Order) -> String {
    let task = json!({
        "nodes": order.nodes,
        "store": order.store,
        "write": WRITE,
        // Whether the client locks at all.
        "locks": order.breakage != Some(Breakage::Foreign),
        "keys": bed::KEYS,
        "tasks": 4,
        "max_ttl_ms": MAX_TTL.as_millis() as u64,
        "longest_pause_ms": order.topology.longest_pause().as_millis() as u64,
        // By how many nanoseconds `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`. They may exceed a number of JavaScript.
        "clock_ahead": clock::ahead_of_monotonic().to_string(),
    });
    task.to_string()
}

/// Returns the foreign clients of a run with the commands that start them. Installs their packages if they are
/// missing. Prints the clients that cannot take part.
pub(crate) fn at_hand(settings: &Settings) -> Vec<(&'static str, Command)> {
    let mut at_hand = Vec::new();
    let take_part = [None, Some(Breakage::Foreign)].contains(&settings.breakage);
    for (name, script) in CLIENTS.into_iter().filter(|_| take_part) {
        let program = match settings.topology {
            Topology::Masters => packages::script(script),
            _ => Err("it does not know which server is a master".into()),
        };
        match program {
            Ok(program) => at_hand.push((name, program)),
            Err(error) => println!("NOT RUN: {name} because {error}"),
        }
    }
    at_hand
}
