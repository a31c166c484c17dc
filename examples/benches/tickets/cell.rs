use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    client::{Client, Owners, Seen},
    figures::Figure,
    support::Server,
};

/// How many clients send requests at once, each on a connection of its own.
const CLIENTS: usize = 64;

/// A server process with its figures so far.
pub(crate) struct Cell {
    pub(crate) locked: bool,
    server: Server,
    event: String,
    seats: u32,
    owners: Arc<Owners>,
    seen: Vec<Seen>,
    time: Duration,
}

impl Cell {
    pub(crate) fn new(server: Server, event: &str, seats: u32, locked: bool) -> Self {
        Self {
            locked,
            server,
            event: event.to_owned(),
            seats,
            owners: Arc::new(Owners::new(seats)),
            seen: Vec::new(),
            time: Duration::ZERO,
        }
    }

    /// Measures for this time, and adds the result to the figures.
    pub(crate) async fn measure(&mut self, time: Duration) -> Result<()> {
        let address = self.server.url.strip_prefix("http://");
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
            self.seen.push(seen??);
        }
        self.time += start.elapsed();
        Ok(())
    }

    /// Reads the server's own count of repeated sales, and stops the server.
    pub(crate) async fn finish(self) -> Result<Figure> {
        let mut all = Seen::new()?;
        for seen in &self.seen {
            all.add(seen)?;
        }
        let url = format!("{}/events/{}/seats", self.server.url, self.event);
        let state: Value = reqwest::get(url).await?.json().await?;
        let sold_twice = state["sold_twice"].as_u64();
        let seconds = self.time.as_secs_f64();
        Ok(Figure {
            seats: self.seats,
            locked: self.locked,
            seconds,
            requests_per_second: all.latencies.len() as f64 / seconds,
            sales_per_second: all.sales as f64 / seconds,
            p50_us: all.latencies.value_at_quantile(0.5),
            p99_us: all.latencies.value_at_quantile(0.99),
            sold_twice_by_server: sold_twice.context("a count")?,
            sold_twice_by_clients: self.owners.sold_twice(),
        })
    }
}
