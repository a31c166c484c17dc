use std::time::Instant;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::times::Times;
use crate::Result;

/// Returns how many microseconds a `PING` takes over a bare socket: the median of some.
pub(crate) async fn round_trip(url: &str) -> Result<f64> {
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
