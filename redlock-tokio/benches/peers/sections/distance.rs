use std::{
    fmt,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    Result, contestants,
    load::Load,
    proxy::Proxy,
    racer::{Entry, race},
    table,
    times::{Summary, Times},
};

const TASKS: [usize; 2] = [1, 64];
const ROUNDS: usize = 2;
const ROUND: Duration = Duration::from_millis(700);

/// What a lock costs when the nodes are far away, so that round trips are all that counts.
pub(crate) struct Distance {
    /// Each node's bare round trip, measured beside the locks.
    round_trips: Vec<Summary>,
    entries: Vec<Entry>,
}

/// Measures over nodes that are this far away, in milliseconds there and back.
pub(crate) async fn measure(distances: &[u64], quick: bool) -> Result<Distance> {
    let servers = RedisServers::spawn(distances.len())?;
    let proxies = servers
        .iter()
        .zip(distances)
        .map(|(server, &distance)| Proxy::open(server, Duration::from_millis(distance)))
        .collect::<Result<Vec<_>>>()?;
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let racers = contestants::locks(&urls).await?;
    let round = if quick { ROUND / 4 } else { ROUND };
    let mut entries = Vec::new();
    for tasks in TASKS {
        for racer in &racers {
            // Connections are opened.
            racer.run(&Load::new(tasks, round / 4)).await?;
        }
        entries.extend(race(&racers, &Load::new(tasks, round), ROUNDS).await?);
    }
    let mut round_trips = Vec::new();
    for proxy in &proxies {
        round_trips.push(round_trip(proxy).await?);
    }
    Ok(Distance {
        round_trips,
        entries,
    })
}

/// Sends some `PING`s over a bare socket.
async fn round_trip(proxy: &Proxy) -> Result<Summary> {
    const TIMES: usize = 40;
    let mut stream = TcpStream::connect(proxy.url().trim_start_matches("redis://")).await?;
    stream.set_nodelay(true)?;
    let mut times = Times::new()?;
    for _ in 0..TIMES {
        let start = Instant::now();
        stream.write_all(b"PING\r\n").await?;
        stream.read_exact(&mut [0; "+PONG\r\n".len()]).await?;
        times.record(start.elapsed());
    }
    Ok(times.summary())
}

impl Distance {
    /// The unit of the table: the bare round trip to the nearest node.
    fn unit(&self) -> f64 {
        let medians = self.round_trips.iter().map(|it| it.p50_us);
        medians.fold(f64::INFINITY, f64::min)
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = self.round_trips.iter().map(|it| table::time(it.p50_us));
        let bare = bare.collect::<Vec<_>>().join(", ");
        writeln!(f, "## Far nodes, a key per task: bare round trips {bare}\n")?;
        let round_trips = |us| table::ratio(us, self.unit());
        let columns: &[table::Column<'_, Entry>] = &[
            ("contestant", &|it| it.contestant.to_owned()),
            ("tasks", &|it| it.tasks.to_string()),
            ("cycles/s", &|it| table::whole(it.outcome.cycles_per_s)),
            ("acquire p50", &|it| table::time(it.outcome.acquire.p50_us)),
            ("p99", &|it| table::time(it.outcome.acquire.p99_us)),
            ("in round trips", &|it| {
                round_trips(it.outcome.acquire.p50_us)
            }),
            ("p99", &|it| round_trips(it.outcome.acquire.p99_us)),
            ("release p50", &|it| table::time(it.outcome.release.p50_us)),
            ("p99", &|it| table::time(it.outcome.release.p99_us)),
            ("in round trips", &|it| {
                round_trips(it.outcome.release.p50_us)
            }),
            ("p99", &|it| round_trips(it.outcome.release.p99_us)),
        ];
        let table = table::of(&self.entries, columns);
        writeln!(f, "{table}")?;
        for entry in &self.entries {
            entry.outcome.write_failures(f, entry.contestant)?;
        }
        Ok(())
    }
}
