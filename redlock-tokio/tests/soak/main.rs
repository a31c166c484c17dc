//! A soak: hundreds of tasks in several processes lock a few dozen keys over five real
//! `redis-server` processes, while up to a minority of these fails in every way that the fault
//! matrix knows, and workers are stopped for longer than their locks live.
//!
//! ```text
//! make soak MINUTES=10
//! make soak MINUTES=1 SEED=42     # the same faults, at the same times, to the same servers
//! SOAK_BREAK=no-lock SOAK_SECONDS=5 cargo test -p redlock-tokio --test soak
//! ```
//!
//! `SOAK_SECONDS` is how long it rains faults, `SOAK_SEED` which ones, `SOAK_FAULTS` which
//! [kinds](plan::Kind) only, such as `Freeze,Strand`. The seed also decides what the tasks do; when
//! they come to do it, it does not. With `SOAK_TRACE` faults and errors are told as they happen.
//!
//! # What must hold
//!
//! | | how it is found out |
//! |---|---|
//! | no two hold a key at once | each hold is written down, from after it was given to before it is given back or to the end of its validity as its holder saw it, by `CLOCK_BOOTTIME`, which all processes share |
//! | no update is lost | under the lock, a counter in another `redis-server` is read and, after a pause, written; the number of writes must be its value |
//! | no key is left | when all have shut down, and a ttl later, no node has a lock's key |
//! | nothing leaks | descriptors and memory of each worker late in the run against early on; after the last handle has gone, no socket is left |
//! | nobody hangs | no task takes longer for one turn than [`worker::TURN_LIMIT`]; each worker ends when told to |
//! | it tested something | contention, losses, cancelled acquisitions and each kind of fault were seen |
//!
//! A holder can be stopped between asking `is_valid()` and writing: a documented limit of every lock
//! without a fence. So the write takes along when the validity ends, and the store refuses it from
//! then on; what the soak checks is then what is promised, that nobody else holds the lock *within
//! its validity*. The store and the workers share a wall clock, which must not be set meanwhile.
//!
//! # Negative controls
//!
//! The run then fails unless it finds out what `SOAK_BREAK` has broken:
//!
//! | | |
//! |---|---|
//! | `no-lock` | workers do without the lock |
//! | `forget` | all nodes lose all keys now and then (`FLUSHALL`) |
//! | `trust` | all nodes restart now and then, and vote at once; `SOAK_FAULTS=PowerCut` does the same to nodes that wait, and must find nothing |
//! | `leak` | workers lose memory, files and a socket, and a key stays |
//!
//! Without `SOAK_SECONDS`, in a plain `cargo test`, the first of them runs for two seconds.

mod bed;
mod crew;
mod faults;
mod findings;
mod history;
mod leftovers;
mod line;
mod order;
mod plan;
mod report;
mod run;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod usage;
mod worker;

use std::{env, error::Error, process::ExitCode};

use order::Order;
use settings::Settings;

/// What went wrong with the test bed itself, in words.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match Order::parse(&arguments) {
        Some(Ok(order)) => worker::work(&order),
        Some(Err(error)) => Err(error),
        None if !is_meant(&arguments) => Ok(()),
        None => Settings::from_env().and_then(|it| run::run(&it)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether `cargo test` with these arguments means this: not if it wants a list, or a test
/// of another name.
fn is_meant(arguments: &[String]) -> bool {
    let is_other = |it: &String| it == "--list" || !(it.starts_with('-') || "soak".contains(&**it));
    Settings::are_given() || !arguments.iter().any(is_other)
}
