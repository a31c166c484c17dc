use std::{fmt, time::Duration};

use redlock_kit::RedisServers;

use crate::{
    Result,
    race::{Entry, Racer, Sample, race},
    shared::{
        contestants::{Contestant, Dropped, Ours, Rslock},
        proxy::Proxy,
        round_trip::round_trips,
        table,
    },
};

const TASKS: [usize; 2] = [1, 64];
const ROUNDS: usize = 2;
const ROUND: Duration = Duration::from_millis(700);

/// What a lock costs when the nodes are far away, so that round trips are all that counts.
pub(crate) struct Distance {
    /// The bare round trip to each node in microseconds, measured beside the locks.
    round_trips: Vec<f64>,
    nearest: f64,
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
    let ours = Ours::connect(&urls).await?;
    let racers: [Box<dyn Racer>; 3] = [
        Box::new(Rslock::connect(&urls).await?),
        Box::new(Dropped(ours.clone())),
        Box::new(ours),
    ];
    let round = if quick { ROUND / 4 } else { ROUND };
    let mut entries = Vec::new();
    for tasks in TASKS {
        for racer in &racers {
            // Connections are opened.
            racer.run(tasks, round / 4, &mut Sample::default()).await?;
        }
        entries.extend(race(&racers, tasks, round, ROUNDS).await?);
    }
    let (round_trips, nearest) = round_trips(&urls).await?;
    Ok(Distance {
        round_trips,
        nearest,
        entries,
    })
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = self.round_trips.iter().map(|it| table::time(*it));
        let bare = bare.collect::<Vec<_>>().join(", ");
        writeln!(f, "## Far nodes, a key per task: bare round trips {bare}\n")?;
        let round_trips = |us| table::ratio(us, self.nearest);
        let columns: &[table::Column<'_, Entry>] = &[
            ("contestant", &|it| it.contestant.to_owned()),
            ("tasks", &|it| it.tasks.to_string()),
            ("cycles/s", &|it| table::whole(it.sample.cycles_per_s())),
            ("acquire p50", &|it| table::time(it.sample.acquire().p50_us)),
            ("p99", &|it| table::time(it.sample.acquire().p99_us)),
            ("in round trips", &|it| {
                round_trips(it.sample.acquire().p50_us)
            }),
            ("release p50", &|it| table::time(it.sample.release().p50_us)),
            ("in round trips", &|it| {
                round_trips(it.sample.release().p50_us)
            }),
        ];
        writeln!(f, "{}", table::of(&self.entries, columns))?;
        for entry in &self.entries {
            entry.sample.write_failures(f, entry.contestant)?;
        }
        Ok(())
    }
}
