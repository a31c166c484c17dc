use std::{path::PathBuf, time::Duration};

use clap::Parser;

/// The options on the command line.
#[derive(Debug, Parser)]
#[command(about = "Measures what the lock costs the box office")]
pub(crate) struct Args {
    /// How many seconds to measure each cell.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// The numbers of seats that the clients share, one for each cell, with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "1,16,1024", value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) seats: Vec<u32>,
    /// The path of a JSON file for the figures, relative to the package.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// The argument that `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number between 0.1 and 600".to_owned()),
    }
}
