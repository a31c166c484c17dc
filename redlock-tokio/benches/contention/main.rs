//! Contention for one lock: many tasks in several processes, one key, five real
//! `redis-server` processes. This crate's lock, a rival and a floor, all in one run, since only
//! figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench contention                          # two or three minutes
//! cargo bench -p redlock-tokio --bench contention -- --only ours,rslock    # some contestants
//! cargo bench -p redlock-tokio --bench contention -- --seconds 5           # longer cells
//! cargo bench -p redlock-tokio --bench contention -- --fairness            # clients of several kinds, 4 minutes
//! cargo bench -p redlock-tokio --bench contention -- --sharing             # permits, 1.5 minutes
//! cargo bench -p redlock-tokio --bench contention -- --faults              # processes and nodes that fail, 2 minutes
//! cargo bench -p redlock-tokio --bench contention -- --distance 5          # nodes a round trip of 5 ms away
//! ```
//!
//! Prints Markdown tables. Fails if two holds ever overlapped. Each cell is measured in processes of its own, which
//! end when this one does, however it ends. All load stays on the loopback interface.

mod access;
mod args;
mod cell;
mod clock;
mod contestant;
mod contestants;
mod crew;
mod history;
mod load;
#[path = "../shared/machine.rs"]
mod machine;
#[allow(dead_code, reason = "peers asks the nodes more than this does")]
#[path = "../shared/nodes.rs"]
mod nodes;
mod order;
#[path = "../shared/packages.rs"]
mod packages;
#[path = "../shared/program.rs"]
mod program;
#[path = "../shared/proxy.rs"]
mod proxy;
mod round_trip;
mod sections;
#[allow(dead_code, reason = "peers has more kinds of rows")]
#[path = "../shared/table.rs"]
mod table;
mod test_bed;
#[allow(dead_code, reason = "peers adds them up")]
#[path = "../shared/times.rs"]
mod times;
mod worker;
mod workload;

use std::{env, process::ExitCode, time::Instant};

use args::Args;
use machine::Machine;
use program::{Result, runtime};

fn main() -> ExitCode {
    program::start(run)
}

fn run() -> Result<()> {
    let args = Args::parse(env::args().skip(1))?;
    if let Some(order) = &args.work {
        return worker::run(order);
    }
    let start = Instant::now();
    let machine = Machine::look();
    let failures = sections::run(&args)?;
    println!("{machine}, took {:.0?}", start.elapsed());
    program::verdict(&failures)
}
