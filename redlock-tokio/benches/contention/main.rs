//! What a lock does that everybody wants at once: many tasks in several processes, one key, five real
//! `redis-server` processes. This crate's lock, a rival and a floor, all in one run, since only
//! figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench contention                          # two or three minutes
//! cargo bench -p redlock-tokio --bench contention -- --only ours,rslock    # some contestants
//! cargo bench -p redlock-tokio --bench contention -- --seconds 5           # longer cells
//! ```
//!
//! Prints Markdown tables, and writes all figures to a JSON file; its path is relative to the
//! package. Fails if two holds ever overlapped. Each cell is measured in processes of its own, which
//! end when this one does, however it ends. All load stays on the loopback interface.

mod args;
mod cell;
mod clock;
mod contestant;
mod contestants;
mod crew;
mod figures;
mod history;
mod load;
#[path = "../peers/machine.rs"]
mod machine;
#[allow(dead_code, reason = "peers asks the nodes more than this does")]
#[path = "../peers/nodes.rs"]
mod nodes;
mod round_trip;
#[allow(dead_code, reason = "only its times are needed here")]
#[path = "../peers/sample.rs"]
mod sample;
mod sections;
#[allow(dead_code, reason = "peers has more kinds of rows")]
#[path = "../peers/table.rs"]
mod table;
mod test_bed;
mod worker;
mod workload;

use std::{env, error::Error, fs, path::PathBuf, process::ExitCode, time::Instant};

use args::Args;
use tokio::runtime::{Builder, Runtime};

/// What went wrong, in words: a benchmark has nobody to handle errors by kind.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

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
            eprintln!("contention: {error}");
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
    let figures = sections::run(&args)?;
    println!("{}, took {:.0?}", figures.machine, start.elapsed());

    let path = args.json.clone().map_or_else(default_path, Ok)?;
    fs::write(&path, serde_json::to_string_pretty(&figures)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("All figures: {}", path.display());
    if figures.failures.is_empty() {
        Ok(())
    } else {
        Err(figures.failures.join("\n").into())
    }
}

/// `contention.json` in the target directory, in which this program is `release/deps/contention-..`.
fn default_path() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3);
    Ok(target.ok_or("no target directory")?.join("contention.json"))
}

/// Makes the runtime that contestants run on.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?)
}
