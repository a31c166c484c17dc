use std::{fmt, fs, thread};

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

/// The figures of one server.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) seats: u32,
    pub(crate) locked: bool,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) sales_per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) sold_twice_by_server: u64,
    pub(crate) sold_twice_by_clients: u64,
}

/// A server with the lock and one without it, measured in turns.
#[derive(Debug, Serialize)]
struct Pair {
    place: &'static str,
    with: Figure,
    without: Figure,
}

/// All figures.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures(Vec<Pair>);

impl Figures {
    pub(crate) fn add(&mut self, place: &'static str, with: Figure, without: Figure) {
        let pair = Pair {
            place,
            with,
            without,
        };
        self.0.push(pair);
    }

    /// Fails if a seat was sold twice under the lock, or if the control without the lock found no repeated sale.
    pub(crate) fn check(&self) -> Result<()> {
        for Pair {
            place,
            with,
            without,
        } in &self.0
        {
            let seats = with.seats;
            ensure!(
                with.sold_twice_by_server + with.sold_twice_by_clients == 0,
                "{place}, {seats} seats: sold twice, under the lock"
            );
            ensure!(
                seats > 1
                    || (without.sold_twice_by_server > 0 && without.sold_twice_by_clients > 0),
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
        for pair in &self.0 {
            for figure in [&pair.with, &pair.without] {
                let ratio = figure.requests_per_second / pair.without.requests_per_second;
                table.add_row([
                    pair.place.to_owned(),
                    figure.seats.to_string(),
                    if figure.locked { "yes" } else { "no" }.to_owned(),
                    format!("{:.0}", figure.requests_per_second),
                    format!("{ratio:.2}"),
                    format!("{:.2} ms", figure.p50_us as f64 / 1e3),
                    format!("{:.2} ms", figure.p99_us as f64 / 1e3),
                    format!("{:.0}", figure.sales_per_second),
                    figure.sold_twice_by_server.to_string(),
                ]);
            }
        }
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().unwrap_or("unknown");
        writeln!(f, "{table}")?;
        write!(f, "64 clients; {cores} cores, load average {load}")
    }
}
