use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::yield_now};

/// The owners of the seats, by the answers to the clients. This check is independent of the server's.
#[derive(Debug)]
pub(crate) struct Owners {
    of_seat: Vec<AtomicU32>,
    sold_twice: AtomicU64,
}

impl Owners {
    pub(crate) fn new(seats: u32) -> Self {
        Self {
            of_seat: (0..seats).map(|_| AtomicU32::new(0)).collect(),
            sold_twice: AtomicU64::new(0),
        }
    }

    /// How many seats were sold that another client had bought and not given back.
    pub(crate) fn sold_twice(&self) -> u64 {
        self.sold_twice.load(SeqCst)
    }
}

/// The observations of the clients.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The times of all requests, in microseconds.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) sales: u64,
}

impl Seen {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            latencies: Histogram::new(3)?,
            sales: 0,
        })
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.sales += other.sales;
        Ok(())
    }
}

/// One buyer, on a connection that is kept open.
pub(crate) struct Client {
    connection: SendRequest<Empty<Bytes>>,
    name: String,
    /// The beginning of the paths of all seats.
    path: String,
    owners: Arc<Owners>,
    is_locked: bool,
    seen: Seen,
}

impl Client {
    pub(crate) async fn connect(
        address: &str,
        event: &str,
        number: usize,
        owners: Arc<Owners>,
        is_locked: bool,
    ) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self {
            connection: sender,
            name: format!("client-{number}"),
            path: format!("/events/{event}/seats"),
            owners,
            is_locked,
            seen: Seen::new()?,
        })
    }

    /// Buys a random seat and gives it back, again and again. In the end the client owns no seat.
    pub(crate) async fn work(mut self, time: Duration) -> Result<Seen> {
        let mut rng = Rng::new();
        let start = Instant::now();
        while start.elapsed() < time {
            let seat = rng.usize(..self.owners.of_seat.len());
            if self.has_bought(seat).await? {
                yield_now().await; // so that another client could buy the seat meanwhile
                self.give_back(seat).await?;
            }
        }
        Ok(self.seen)
    }

    async fn has_bought(&mut self, seat: usize) -> Result<bool> {
        match self.ask(Method::POST, seat).await? {
            StatusCode::CREATED => {
                self.seen.sales += 1;
                if self.owners.of_seat[seat].fetch_add(1, SeqCst) > 0 {
                    self.owners.sold_twice.fetch_add(1, SeqCst);
                }
                Ok(true)
            }
            StatusCode::CONFLICT => Ok(false),
            status => bail!("{status} for a sale"),
        }
    }

    async fn give_back(&mut self, seat: usize) -> Result<()> {
        // The seat may have another owner as soon as the server has the request.
        self.owners.of_seat[seat].fetch_sub(1, SeqCst);
        let status = self.ask(Method::DELETE, seat).await?;
        // Without the lock another client may have bought the seat, or given it back.
        let is_lost = [StatusCode::FORBIDDEN, StatusCode::CONFLICT].contains(&status);
        ensure!(
            status == StatusCode::NO_CONTENT || (is_lost && !self.is_locked),
            "{status} for a seat that is given back"
        );
        Ok(())
    }

    async fn ask(&mut self, method: Method, seat: usize) -> Result<StatusCode> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/{}", self.path, seat + 1))
            .header("host", "localhost")
            .header("buyer", &self.name)
            .body(Empty::new())?;
        let start = Instant::now();
        let response = self.connection.send_request(request).await;
        let response = response.context("no answer")?;
        let status = response.status();
        response.into_body().collect().await?;
        let us = u64::try_from(start.elapsed().as_micros())?;
        self.seen.latencies.record(us)?;
        Ok(status)
    }
}
