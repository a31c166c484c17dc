//! The figures of `PERFORMANCE.md`: this crate's lock, others and floors, over real `redis-server` processes, all in one
//! run, since only figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench figures                                    # all tables, in twenty minutes
//! cargo bench -p redlock-tokio --bench figures -- --only own-keys,one-key         # some of them
//! cargo bench -p redlock-tokio --bench figures -- --seconds 5                     # longer cells
//! cargo bench -p redlock-tokio --bench figures -- --rows a,b                      # some faults
//! cargo bench -p redlock-tokio --bench figures -- --mix 4x8,8x1+poller            # clients of these kinds alone
//! cargo bench -p redlock-tokio --bench figures -- --mix 4x8 --distance 5          # nodes a round trip of 5 ms away
//! ```
//!
//! The mix `4x8` has 4 processes of 8 tasks. Beside them there can be a `poller`, `newcomers`, `node-redlock` or
//! `redis-semaphore`.
//!
//! Prints Markdown tables. Fails if two holds ever overlapped. Each cell is measured in processes of its own, which
//! end when this one does, however it ends. All load stays on the loopback interface.

mod args;
mod bed;
mod contestants;
mod crew;
mod group;
mod history;
mod load;
mod machine;
mod nodes;
#[path = "../shared/packages.rs"]
mod packages;
mod sections;
#[path = "../shared/table.rs"]
mod table;
mod times;
mod worker;

use std::{env, error::Error, process::ExitCode, time::Instant};

use args::Args;
use tokio::runtime::{Builder, Runtime};

/// An error in words: nothing handles errors by kind in a benchmark.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Threads of each process. Two, whatever the machine has: servers and clients share it, and figures
/// of machines with more cores stay comparable.
const THREADS: usize = 2;

fn main() -> ExitCode {
    // `cargo test --all-targets` runs this program too, but without the argument that `cargo bench`
    // adds.
    if !env::args().any(|it| it == "--bench") {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
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
    match &failures[..] {
        [] => Ok(()),
        failures => Err(failures.join("\n").into()),
    }
}

/// Makes the runtime that contestants run on.
fn runtime() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(THREADS).enable_all().build()?)
}
