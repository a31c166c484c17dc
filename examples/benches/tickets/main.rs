//! The cost of the lock for a service: the box office sells seats to 64 clients on keep-alive connections, with
//! the lock and without it, all in one run, since only figures of one run can be compared.
//!
//! ```sh
//! cargo bench -p redlock-examples --features tickets --bench tickets                            # less than a minute
//! cargo bench -p redlock-examples --features tickets --bench tickets -- --seconds 10            # longer cells
//! cargo bench -p redlock-examples --features tickets --bench tickets -- --seats 1,8          # other numbers of seats
//! ```
//!
//! The server is a process of its own, and payments take no time. Clients buy random seats and give them
//! back. With embedded nodes, the process keeps the sales; otherwise the lock is on
//! five `redis-server` processes, and a sixth one keeps the sales. Rounds with the lock and without it
//! alternate.
//!
//! With 1024 seats, half of the answers are sales with the lock and without it. With fewer, most of those
//! with the lock are refusals, which are less work. Compare the column `sales/s` there.
//!
//! Fails if a seat was sold twice under the lock, by the count of the server or of the clients. Fails as well if
//! neither count finds a repeated sale without the lock, when all clients want the same seat. The load stays on the
//! loopback interface.

mod cell;
mod client;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::{
    env,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use cell::{Cell, Figures};
use clap::Parser;
use redlock_kit::RedisServers;
use support::Server;

/// The rounds of each cell. They alternate, so that other load on the machine affects both sides.
const ROUNDS: u32 = 3;

/// The options on the command line.
#[derive(Debug, Parser)]
#[command(about = "Measures what the lock costs the box office")]
struct Args {
    /// How many seconds to measure each cell.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The numbers of seats that the clients share, one for each cell, with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "1,16,1024")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=2_000))]
    seats: Vec<u32>,
    /// The argument that `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    // `cargo test --all-targets` runs this program too, but without the argument that `cargo bench`
    // adds.
    if !env::args().any(|it| it == "--bench") {
        return ExitCode::SUCCESS;
    }
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tickets: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let nodes = RedisServers::spawn(5)?;
    let data = RedisServers::spawn(1)?;
    let mut figures = Figures::default();
    measure(args, "embedded", None, &mut figures).await?;
    measure(args, "redis", Some((&nodes, &data)), &mut figures).await?;
    println!("{figures}");
    println!("took {:.0?}", start.elapsed());
    figures.check()
}

/// Measures all cells on one kind of nodes and store.
async fn measure(
    args: &Args,
    place: &'static str,
    servers: Option<(&RedisServers, &RedisServers)>,
    figures: &mut Figures,
) -> Result<()> {
    let nodes = servers.map(|(nodes, _)| nodes);
    let data = servers.map(|(_, data)| data.get(0).url());
    let most = args.seats.iter().max().context("--seats is empty")?;
    let round_time = Duration::from_secs(args.seconds.into()) / ROUNDS;
    for &seats in &args.seats {
        // Two servers that share nothing but the machine: events of other names are other keys.
        let cell = |locked: bool| {
            let event = format!("{place}-{seats}-{}", if locked { "lock" } else { "none" });
            let [most, payment] = [most.to_string(), "0ms".to_owned()];
            let mut arguments = vec!["--events", &event, "--seats", &most, "--payment", &payment];
            if let Some(data) = &data {
                arguments.extend(["--data", data]);
            }
            if !locked {
                arguments.push("--no-lock");
            }
            let server = Server::start(env!("CARGO_BIN_EXE_tickets"), &arguments, nodes);
            Cell::new(server, &event, seats, locked)
        };
        let mut cells = [cell(true)?, cell(false)?];
        for round in 0..ROUNDS {
            // The order changes, since the second server runs on a warm machine.
            cells.rotate_left(round as usize % 2);
            for cell in &mut cells {
                cell.measure(round_time).await?;
            }
        }
        cells.sort_unstable_by_key(|cell| !cell.locked);
        let [with, without] = cells;
        let pair = (place, with.finish().await?, without.finish().await?);
        figures.0.push(pair);
    }
    Ok(())
}
