//! Contention for one lock: many tasks in several processes, one key, five real
//! `redis-server` processes. This crate's lock, a rival and a floor, all in one run, since only
//! figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench contention                           # many tasks at one key, a minute
//! cargo bench -p redlock-tokio --bench contention -- --seconds 5            # longer cells
//! cargo bench -p redlock-tokio --bench contention -- --mix 4x8,8x1+poller   # clients of several kinds
//! cargo bench -p redlock-tokio --bench contention -- --mix 4x8 --distance 5 # nodes a round trip of 5 ms away
//! cargo bench -p redlock-tokio --bench contention -- --sharing              # permits, readers and writers, 2 minutes
//! cargo bench -p redlock-tokio --bench contention -- --faults               # processes and nodes that fail, 2 minutes
//! ```
//!
//! The mix `4x8` has 4 processes of 8 tasks. Beside them there can be a `poller`, `newcomers`, `node-redlock`,
//! `redis-semaphore` or `redis-py`.
//!
//! Prints Markdown tables. Fails if two holds ever overlapped. Each cell is measured in processes of its own, which
//! end when this one does, however it ends. All load stays on the loopback interface.

mod args;
mod bed;
mod column;
mod crew;
mod group;
mod sections;
#[path = "../shared/shared.rs"]
mod shared;
mod worker;

use std::{env, process::ExitCode, time::Instant};

use args::Args;
use shared::{
    machine,
    program::{self, Result},
};

fn main() -> ExitCode {
    program::start(run)
}

fn run() -> Result<()> {
    let args = Args::parse(env::args().skip(1))?;
    if let Some(order) = &args.work {
        return worker::run(order);
    }
    let start = Instant::now();
    let machine = machine::look();
    let failures = sections::run(&args)?;
    println!("{machine}, took {:.0?}", start.elapsed());
    program::verdict(&failures)
}
