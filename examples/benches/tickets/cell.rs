use std::{fmt, fs, sync::Arc, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    client::{Client, Owners, Seen},
    support::Server,
};

/// How many clients send requests at once, each on a connection of its own.
const CLIENTS: usize = 64;

/// A server process, and what its clients have seen so far.
pub(crate) struct Cell {
    pub(crate) locked: bool,
    /// None after the measurement.
    server: Option<Server>,
    event: String,
    seats: u32,
    owners: Arc<Owners>,
    seen: Seen,
    time: Duration,
    /// The server's own count of repeated sales.
    sold_twice: u64,
}

/// All figures: where the nodes and the sales are, a server with the lock there, and one without it, measured in turns.
#[derive(Default)]
pub(crate) struct Figures(pub(crate) Vec<(&'static str, Cell, Cell)>);

impl Cell {
    pub(crate) fn new(server: Server, event: &str, seats: u32, locked: bool) -> Result<Self> {
        Ok(Self {
            locked,
            server: Some(server),
            event: event.to_owned(),
            seats,
            owners: Arc::new(Owners::new(seats)),
            seen: Seen::new()?,
            time: Duration::ZERO,
            sold_twice: 0,
        })
    }

    /// Measures for this time, and adds the result to the figures.
    pub(crate) async fn measure(&mut self, time: Duration) -> Result<()> {
        let server = self.server.as_ref().context("a server")?;
        let address = server.url.strip_prefix("http://");
        let address = address.context("an address")?;
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let owners = Arc::clone(&self.owners);
            let client = Client::connect(address, &self.event, number, owners, self.locked);
            clients.push(client.await?);
        }
        let start = Instant::now();
        let mut working: JoinSet<_> = clients.into_iter().map(|it| it.work(time)).collect();
        while let Some(seen) = working.join_next().await {
            self.seen.add(&seen??)?;
        }
        self.time += start.elapsed();
        Ok(())
    }

    /// Reads the server's own count of repeated sales, and stops the server.
    pub(crate) async fn finish(mut self) -> Result<Self> {
        let server = self.server.take().context("a server")?;
        let url = format!("{}/events/{}/seats", server.url, self.event);
        let state: Value = reqwest::get(url).await?.json().await?;
        self.sold_twice = state["sold_twice"].as_u64().context("a count")?;
        Ok(self)
    }

    fn requests_per_second(&self) -> f64 {
        self.seen.latencies.len() as f64 / self.time.as_secs_f64()
    }
}

impl Figures {
    /// Fails if a seat was sold twice under the lock, or if the control without the lock found no repeated sale.
    pub(crate) fn check(&self) -> Result<()> {
        for (place, with, without) in &self.0 {
            let seats = with.seats;
            ensure!(
                with.sold_twice + with.owners.sold_twice() == 0,
                "{place}, {seats} seats: sold twice, under the lock"
            );
            ensure!(
                seats > 1 || (without.sold_twice > 0 && without.owners.sold_twice() > 0),
                "{place}: without the lock the check did not find a seat that was sold twice"
            );
        }
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        let columns = "nodes and store|seats|lock|requests/s|of no lock|p50|p99|sales/s|sold twice";
        table.load_style(ASCII_MARKDOWN);
        table.set_header(columns.split('|'));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for (place, with, without) in &self.0 {
            for cell in [with, without] {
                let ratio = cell.requests_per_second() / without.requests_per_second();
                let ms = |part| cell.seen.latencies.value_at_quantile(part) as f64 / 1e3;
                table.add_row([
                    (*place).to_owned(),
                    cell.seats.to_string(),
                    if cell.locked { "yes" } else { "no" }.to_owned(),
                    format!("{:.0}", cell.requests_per_second()),
                    format!("{ratio:.2}"),
                    format!("{:.2} ms", ms(0.5)),
                    format!("{:.2} ms", ms(0.99)),
                    format!("{:.0}", cell.seen.sales as f64 / cell.time.as_secs_f64()),
                    cell.sold_twice.to_string(),
                ]);
            }
        }
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().unwrap_or("unknown");
        writeln!(f, "{table}")?;
        write!(f, "{CLIENTS} clients; {cores} cores, load average {load}")
    }
}
