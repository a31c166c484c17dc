//! The frame of every benchmark: its start and its end.

use std::{env, error::Error, process::ExitCode};

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

/// Fails with what has failed, if anything has.
pub(crate) fn verdict(failures: &[String]) -> Result<()> {
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n").into())
    }
}
