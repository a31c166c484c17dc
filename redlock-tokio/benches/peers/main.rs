//! How this crate's lock compares with rivals, and with the floors that no lock can beat, over real
//! `redis-server` processes: all in one run, since only figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench peers                       # everything, in minutes
//! cargo bench -p redlock-tokio --bench peers -- --only own-keys    # one section
//! ```
//!
//! Prints a Markdown table for each section, writes all figures to a JSON file, and with `--svg PATH`
//! draws the main ones. Paths are relative to the package. Contestants take
//! turns in rounds, so that a machine that is slower for a while is slower for all of them.

mod args;
mod contestant;
mod contestants;
mod load;
mod machine;
mod nodes;
mod plot;
mod proxy;
mod sample;
mod sections;
mod table;

use std::{env, error::Error, fs, path::PathBuf, process::ExitCode, time::Instant};

use args::Args;
use tokio::runtime::{Builder, Runtime};

/// What went wrong, in words: a benchmark has nobody to handle errors by kind.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Two, whatever the machine has: servers and clients share it, and figures of machines with
/// more cores stay comparable.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    // `cargo test --all-targets` runs this program too, but without the argument that `cargo bench`
    // adds.
    if !env::args().any(|it| it == "--bench") {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args = Args::parse(env::args().skip(1))?;
    let runtime = runtime()?;
    if let Some(order) = &args.hold {
        println!("{}", runtime.block_on(sections::hold(order))?);
        return Ok(());
    }
    let start = Instant::now();
    let figures = sections::run(&args, &runtime);
    println!("{}, took {:.0?}", figures.machine, start.elapsed());

    let path = args.json.clone().map_or_else(default_path, Ok)?;
    fs::write(&path, serde_json::to_string_pretty(&figures)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("All figures: {}", path.display());
    if let Some(path) = &args.svg {
        plot::draw(&figures, path)?;
        println!("A plot: {}", path.display());
    }
    if figures.failures.is_empty() {
        Ok(())
    } else {
        Err(figures.failures.join("\n").into())
    }
}

/// `peers.json` in the target directory, in which this program is `release/deps/peers-..`.
fn default_path() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3);
    Ok(target.ok_or("no target directory")?.join("peers.json"))
}

/// Makes the runtime that contestants run on.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?)
}
