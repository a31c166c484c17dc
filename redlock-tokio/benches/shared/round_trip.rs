use std::time::Instant;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::times::Times;
use crate::Result;

/// Returns how many microseconds a `PING` to each of these nodes takes over a bare socket, and the least of these times.
pub(crate) async fn round_trips(urls: &[String]) -> Result<(Vec<f64>, f64)> {
    let mut times = Vec::new();
    for url in urls {
        times.push(round_trip(url).await?);
    }
    let nearest = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok((times, nearest))
}

/// Returns the median of some.
async fn round_trip(url: &str) -> Result<f64> {
    const TIMES: usize = 40;
    let mut stream = TcpStream::connect(url.trim_start_matches("redis://")).await?;
    stream.set_nodelay(true)?;
    let mut times = Times::default();
    for _ in 0..TIMES {
        let start = Instant::now();
        stream.write_all(b"PING\r\n").await?;
        stream.read_exact(&mut [0; "+PONG\r\n".len()]).await?;
        times.record(start.elapsed());
    }
    Ok(times.summary().p50_us)
}
