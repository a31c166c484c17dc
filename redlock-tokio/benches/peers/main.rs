//! How this crate's lock compares with rivals, and with the floors that no lock can beat, over real
//! `redis-server` processes: all in one run, since only figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench peers                       # everything, in minutes
//! cargo bench -p redlock-tokio --bench peers -- --only own-keys    # one section
//! ```
//!
//! Prints a Markdown table for each section. Contestants take turns in rounds, so that a machine that is slower for a
//! while is slower for all of them.

mod args;
mod race;
mod sections;
#[path = "../shared/shared.rs"]
mod shared;

use std::{env, process::ExitCode, time::Instant};

use args::Args;
use shared::{
    machine,
    program::{self, Result, runtime},
};

fn main() -> ExitCode {
    program::start(run)
}

fn run() -> Result<()> {
    let args = Args::parse(env::args().skip(1))?;
    let runtime = runtime()?;
    if let Some(order) = &args.hold {
        print!("{}", runtime.block_on(sections::hold(order))?);
        return Ok(());
    }
    let start = Instant::now();
    let machine = machine::look();
    let failures = sections::run(&args, &runtime);
    println!("{machine}, took {:.0?}", start.elapsed());
    program::verdict(&failures)
}
