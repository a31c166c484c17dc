//! The nodes' figures about themselves, and about the way to them.

use std::{ops::Sub, time::Instant};

use deadpool_redis::redis::{self, Client};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{Result, times::Times};

/// How many commands all nodes together have carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Commands {
    pub(crate) sets: f64,
    /// How long they took the servers, in microseconds.
    pub(crate) server_us: f64,
    /// Those that scripts make included.
    pub(crate) all: f64,
}

impl Sub for Commands {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            sets: self.sets - other.sets,
            server_us: self.server_us - other.server_us,
            all: self.all - other.all,
        }
    }
}

pub(crate) async fn commands(urls: &[String]) -> Result<Commands> {
    let mut commands = Commands::default();
    for url in urls {
        let client = Client::open(url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("all").query_async(&mut connection).await?;
        let field = |name: &str, end: char| {
            let line = info.lines().find_map(|it| it.strip_prefix(name));
            line.and_then(|it| it.split(end).next()?.parse::<f64>().ok())
        };
        let of_commands = info
            .lines()
            .filter(|it| it.starts_with("cmdstat_") && !it.contains("info:"));
        let times = of_commands.filter_map(|it| it.split("usec=").nth(1)?.split(',').next());
        commands.server_us += times.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>();
        // There is no line for a command that was never called.
        commands.sets += field("cmdstat_set:calls=", ',').unwrap_or_default();
        commands.all += field("total_commands_processed:", '\r')
            .ok_or("INFO does not tell total_commands_processed")?;
    }
    Ok(commands)
}

/// Returns how many microseconds a `PING` to the nearest of these nodes takes over a bare socket: the median of some.
pub(crate) async fn round_trip(urls: &[String]) -> Result<f64> {
    const TIMES: usize = 40;
    let mut nearest = f64::INFINITY;
    for url in urls {
        let mut stream = TcpStream::connect(url.trim_start_matches("redis://")).await?;
        stream.set_nodelay(true)?;
        let mut times = Times::default();
        for _ in 0..TIMES {
            let start = Instant::now();
            stream.write_all(b"PING\r\n").await?;
            stream.read_exact(&mut [0; "+PONG\r\n".len()]).await?;
            times.record(start.elapsed());
        }
        nearest = nearest.min(times.summary().p50_us);
    }
    Ok(nearest)
}
