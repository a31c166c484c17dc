use std::{cell::Cell, ops::Range, thread, time::Duration};

use redlock_kit::RedisServers;
use tokio::runtime::Runtime;

use crate::{
    Result,
    access::Access,
    clock,
    contestants::Name,
    crew::Crew,
    history::{History, TaskHistory},
    nodes::{self, Commands},
    order::{Order, Stay},
    proxy::Proxy,
    round_trip::RoundTrip,
    workload::Workload,
};

pub(crate) const NODES: usize = 5;

/// The servers, and what is known of them before anything else is measured.
pub(crate) struct TestBed {
    pub(crate) runtime: Runtime,
    pub(crate) urls: Vec<String>,
    pub(crate) round_trip: RoundTrip,
    /// The clients that ask the nodes how many commands they have carried out.
    commands_to_ask: f64,
    keys: Cell<usize>,
    /// They end with this.
    pub(crate) servers: RedisServers,
    /// The ways to servers at a distance.
    _proxies: Vec<Proxy>,
}

/// The outcome of orders.
pub(crate) struct Outcome {
    /// The events of each process's tasks, in the order of the orders.
    pub(crate) processes: Vec<Vec<TaskHistory>>,
    /// When that was, without the beginning and the end.
    pub(crate) window: Range<u64>,
    /// How many commands all nodes together carried out meanwhile.
    pub(crate) commands: f64,
    /// How many of them were `SET`.
    pub(crate) sets: f64,
    /// How long they took the servers, in microseconds.
    pub(crate) server_us: f64,
}

impl Outcome {
    /// Returns what happened to all processes.
    pub(crate) fn history(&self) -> History {
        History::new(self.processes.clone(), self.window.clone())
    }

    /// Returns what happened to groups of processes, which have these sizes and come one after the other.
    pub(crate) fn of_groups(&self, sizes: impl Iterator<Item = usize>) -> Vec<History> {
        let mut processes = self.processes.iter().cloned();
        let mut next = |size| processes.by_ref().take(size).collect();
        sizes
            .map(|size| History::new(next(size), self.window.clone()))
            .collect()
    }
}

impl TestBed {
    pub(crate) fn new(distance: Option<Duration>) -> Result<Self> {
        let servers = RedisServers::spawn(NODES)?;
        let proxies = distance.map(|it| servers.iter().map(move |server| Proxy::open(server, it)));
        let proxies: Vec<_> = proxies.into_iter().flatten().collect::<Result<_>>()?;
        let urls = match distance {
            Some(_) => proxies.iter().map(Proxy::url).collect(),
            None => servers.urls(),
        };
        let runtime = crate::runtime()?;
        // In a task of the runtime, as the contestants are.
        let round_trip = RoundTrip::measure(urls.clone());
        let round_trip = runtime.block_on(runtime.spawn(round_trip))??;
        let commands = || runtime.block_on(nodes::commands(&urls));
        let first = commands()?;
        let commands_to_ask = (commands()? - first).all;
        Ok(Self {
            runtime,
            urls,
            round_trip,
            commands_to_ask,
            keys: Cell::new(0),
            servers,
            _proxies: proxies,
        })
    }

    /// Carries the load for this long, in processes of its own. Returns what happened meanwhile, and
    /// how many commands the nodes carried out for it.
    pub(crate) fn run(
        &self,
        contestant: Name,
        workload: Workload,
        time: Duration,
    ) -> Result<(History, f64)> {
        let order = Order {
            urls: self.urls.clone(),
            contestant,
            key: self.new_key(),
            access: Access::Lock,
            tasks: workload.tasks / workload.processes,
            hold: workload.hold,
            stay: Stay::Awake,
        };
        let outcome = self.carry_out(&vec![order; workload.processes], time)?;
        let history = History::new(outcome.processes, outcome.window);
        Ok((history, outcome.commands))
    }

    /// Lets a process carry out each of these orders for this long.
    pub(crate) fn carry_out(&self, orders: &[Order], time: Duration) -> Result<Outcome> {
        let mut crew = Crew::hire(orders)?;
        let (begun, before) = self.commands()?;
        crew.start()?;
        thread::sleep(time);
        let (ended, after) = self.commands()?;
        Ok(Outcome {
            processes: crew.stop()?,
            window: middle(&begun)..middle(&ended),
            commands: (after - before).all - self.commands_to_ask,
            sets: (after - before).sets,
            server_us: (after - before).server_us,
        })
    }

    /// Returns a key that was never used, so that nothing is left from earlier cells.
    pub(crate) fn new_key(&self) -> String {
        let number = self.keys.get();
        self.keys.set(number + 1);
        format!("contention:{number}")
    }

    /// Returns how many commands the nodes have carried out, and when that was asked.
    fn commands(&self) -> Result<(Range<u64>, Commands)> {
        let asked = clock::now();
        let commands = self.runtime.block_on(nodes::commands(&self.urls))?;
        Ok((asked..clock::now(), commands))
    }
}

fn middle(range: &Range<u64>) -> u64 {
    u64::midpoint(range.start, range.end)
}
