//! Is it slow, and where?

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use redlock_tokio::{Event, NodeChange, NodeEvent, Redlock};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    args::{BenchArgs, Connection},
    exit::{Exit, Failure},
    output::Output,
    run::SHUTDOWN,
};

/// The answers of each node.
type Answers = Arc<Mutex<BTreeMap<Arc<str>, Vec<Duration>>>>;

pub(crate) async fn run(
    nodes: &Connection,
    args: &BenchArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let answers = Answers::default();
    let noted = Arc::clone(&answers);
    let builder = nodes
        .builder(nodes.ttl(None))?
        .observer(move |event: &Event| note(&noted, event));
    let begin = Instant::now();
    let redlock = builder.build().await?;
    let connected = begin.elapsed();
    let (locks, releases) = work(&redlock, args).await?;
    let took = begin.elapsed() - connected;
    redlock.shutdown_within(SHUTDOWN).await;
    let nodes: Vec<_> = redlock.nodes().into_iter().map(|it| it.address).collect();
    let mut answers = std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner));
    let nodes = nodes.into_iter().map(|node| {
        let times = answers.remove(&node).unwrap_or_default();
        (node, Times::new(times))
    });
    let report = Report {
        connected,
        took,
        locks: Times::new(locks),
        releases: Times::new(releases),
        nodes: nodes.collect(),
    };
    output.line(report.text(), || report.json());
    Ok(Exit::Ok)
}

fn note(answers: &Mutex<BTreeMap<Arc<str>, Vec<Duration>>>, event: &Event) {
    if let Event::Node(NodeEvent {
        address,
        change: NodeChange::Answered { round_trip },
        ..
    }) = event
    {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers
            .entry(Arc::clone(address))
            .or_default()
            .push(*round_trip);
    }
}

/// Takes and releases locks. Returns how long each took.
async fn work(
    redlock: &Redlock,
    args: &BenchArgs,
) -> Result<(Vec<Duration>, Vec<Duration>), Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..args.tasks {
        let (redlock, locks) = (redlock.clone(), args.locks / args.tasks);
        let key = format!("redlock-bench:{}:{task}", std::process::id());
        tasks.spawn(async move {
            let mut times = (Vec::new(), Vec::new());
            for _ in 0..locks {
                let begin = Instant::now();
                let guard = redlock.lock(&key).await?;
                times.0.push(begin.elapsed());
                let begin = Instant::now();
                guard.release().await;
                times.1.push(begin.elapsed());
            }
            Ok::<_, Failure>(times)
        });
    }
    let mut all = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let done = done.map_err(|error| Failure::new(Exit::Internal, error))??;
        all.0.extend(done.0);
        all.1.extend(done.1);
    }
    Ok(all)
}

/// Measured times, in order.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns the time that so many percent do not exceed.
    fn percent(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0
            .get(last * percent / 100)
            .copied()
            .unwrap_or_default()
    }

    fn text(&self) -> String {
        if self.0.is_empty() {
            return "no answer".into();
        }
        let [half, most, worst] = [50, 99, 100].map(|it| millis(self.percent(it)));
        format!("p50 {half:>9}   p99 {most:>9}   max {worst:>9}")
    }

    fn json(&self) -> Value {
        let [half, most, worst] = [50, 99, 100].map(|it| self.percent(it).as_secs_f64());
        json!({"count": self.0.len(), "p50": half, "p99": most, "max": worst})
    }
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

struct Report {
    connected: Duration,
    took: Duration,
    locks: Times,
    releases: Times,
    nodes: Vec<(Arc<str>, Times)>,
}

impl Report {
    /// Returns the median of the node that completes the majority: a lock waits for it.
    fn decisive(&self) -> Duration {
        let times = self.nodes.iter().filter(|(_, times)| !times.0.is_empty());
        let mut medians: Vec<_> = times.map(|(_, times)| times.percent(50)).collect();
        medians.sort_unstable();
        medians
            .get(self.nodes.len() / 2)
            .copied()
            .unwrap_or_default()
    }

    /// Says where the time goes.
    fn diagnosis(&self) -> Vec<String> {
        let (lock, decisive) = (self.locks.percent(50), self.decisive());
        let votes = self.nodes.len() / 2 + 1;
        let rest = lock.saturating_sub(decisive);
        let mut lines = vec![format!(
            "Half of the locks take {}. The node that completes the majority ({votes} of {}) takes {} of that, and \
             this machine {}.",
            millis(lock),
            self.nodes.len(),
            millis(decisive),
            millis(rest)
        )];
        for (node, times) in &self.nodes {
            if times.0.is_empty() {
                lines.push(format!(
                    "{node} has not answered: the others must all be fast."
                ));
            } else if times.percent(50) > 3 * decisive {
                lines.push(format!(
                    "{node} is slow. It does not matter while {votes} others are fast."
                ));
            } else if times.percent(99) > 10 * times.percent(50) {
                lines.push(format!(
                    "{node} is slow now and then: look at its slow log, and at the network."
                ));
            }
        }
        lines
    }

    fn text(&self) -> String {
        let width = self
            .nodes
            .iter()
            .map(|(node, _)| node.len())
            .max()
            .unwrap_or_default()
            .max(8);
        let rate = self.locks.0.len() as f64 / self.took.as_secs_f64();
        let mut text = format!(
            "connected in {}, {rate:.0} locks a second\n",
            millis(self.connected)
        );
        let own = [("lock", &self.locks), ("release", &self.releases)];
        let nodes = self.nodes.iter().map(|(node, times)| (&**node, times));
        for (name, times) in own.into_iter().chain(nodes) {
            let _ = writeln!(text, "{name:<width$}  {}", times.text());
        }
        text + &self.diagnosis().join("\n")
    }

    fn json(&self) -> Value {
        let nodes = self.nodes.iter().map(|(node, times)| {
            let mut value = times.json();
            value["node"] = json!(**node);
            value
        });
        json!({
            "connect_seconds": self.connected.as_secs_f64(),
            "locks_per_second": self.locks.0.len() as f64 / self.took.as_secs_f64(),
            "lock_seconds": self.locks.json(),
            "release_seconds": self.releases.json(),
            "round_trip_seconds": nodes.collect::<Vec<_>>(),
            "diagnosis": self.diagnosis(),
        })
    }
}
