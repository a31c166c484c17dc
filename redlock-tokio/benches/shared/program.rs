//! The frame of every benchmark: its start, its file of figures, and its end.

use std::{env, error::Error, fs, path::PathBuf, process::ExitCode};

use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

/// An error in words: nothing handles errors by kind in a benchmark.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The benchmark that this is a part of.
const NAME: &str = env!("CARGO_CRATE_NAME");

/// Threads of each process. Two, whatever the machine has: servers and clients share it, and figures
/// of machines with more cores stay comparable.
const THREADS: usize = 2;

/// Runs the benchmark, if that is what this program was started for.
pub(crate) fn start(run: impl FnOnce() -> Result<()>) -> ExitCode {
    // `cargo test --all-targets` runs this program too, but without the argument that `cargo bench`
    // adds.
    if !env::args().any(|it| it == "--bench") {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the runtime that contestants run on.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?)
}

/// Writes all figures to a JSON file, and says where that is.
pub(crate) fn write(figures: &impl Serialize, path: Option<PathBuf>) -> Result<()> {
    let path = path.map_or_else(default_path, Ok)?;
    fs::write(&path, serde_json::to_string_pretty(figures)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("All figures: {}", path.display());
    Ok(())
}

/// Fails with what has failed, if anything has.
pub(crate) fn verdict(failures: &[String]) -> Result<()> {
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n").into())
    }
}

/// `peers.json` in the target directory, in which the program `peers` is `release/deps/peers-..`.
fn default_path() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3);
    let target = target.ok_or("no target directory")?;
    Ok(target.join(format!("{NAME}.json")))
}
