use std::{cell::Cell, ops::Range, rc::Rc, thread, time::Duration};

use redlock_kit::RedisServers;
use tokio::runtime::Runtime;

use crate::{
    Result,
    crew::Crew,
    group::{All, Group, Order, Row},
    shared::{
        contestants::{Access, Name},
        history::{self, History},
        nodes::{self, Commands},
        program,
        proxy::Proxy,
    },
};

pub(crate) const NODES: usize = 5;

/// The servers, and the ways to them.
pub(crate) struct Bed {
    pub(crate) runtime: Runtime,
    pub(crate) urls: Vec<String>,
    /// They end with this.
    pub(crate) servers: RedisServers,
    keys: Cell<usize>,
    /// The ways to servers at a distance.
    _proxies: Vec<Proxy>,
}

impl Bed {
    pub(crate) fn new(distance: Option<Duration>) -> Result<Self> {
        let servers = RedisServers::spawn(NODES)?;
        let proxies = distance.map(|it| servers.iter().map(move |server| Proxy::open(server, it)));
        let proxies: Vec<_> = proxies.into_iter().flatten().collect::<Result<_>>()?;
        let urls = match distance {
            Some(_) => proxies.iter().map(Proxy::url).collect(),
            None => servers.urls(),
        };
        Ok(Self {
            runtime: program::runtime()?,
            urls,
            servers,
            keys: Cell::new(0),
            _proxies: proxies,
        })
    }

    /// Lets all groups want one key for this long. Also says what is wrong: a failure, tasks that were in together and
    /// must not be, or that this would not have been noticed.
    pub(crate) fn measure(
        &self,
        groups: &[Group],
        time: Duration,
    ) -> Result<(Vec<Row>, Option<String>)> {
        let key = self.new_key();
        let orders = groups.iter().flat_map(|it| self.orders(*it, groups, &key));
        let orders: Vec<_> = orders.collect();
        let mut crew = Crew::hire(&orders)?;
        let (begun, before) = self.commands()?;
        crew.start()?;
        thread::sleep(time);
        let (ended, after) = self.commands()?;
        let processes = crew.stop()?;

        let window = middle(&begun)..middle(&ended);
        let all = Rc::new(All {
            history: History::new(processes.clone(), window.clone()),
            commands: after - before,
        });
        let mut processes = processes.into_iter();
        let rows = groups.iter().map(|&group| Row {
            group,
            history: History::new(
                processes.by_ref().take(group.processes).collect(),
                window.clone(),
            ),
            all: Rc::clone(&all),
        });
        let rows: Vec<_> = rows.collect();
        let complaint = match (clashes(&rows), groups[0].contestant, groups[0].access) {
            (0, Name::NoLock, _) => {
                Some("no clash was seen without a lock, so none would be seen with one".into())
            }
            (0, ..) | (_, Name::NoLock, _) => all.history.failure(),
            // It counts holders on each node, and so lets more in.
            (_, Name::RedisSemaphore, Access::Permit(_)) => all.history.failure(),
            (clashes, ..) => Some(format!("{clashes} were in together with others")),
        };
        Ok((rows, complaint))
    }

    /// Returns a key that was never used, so that nothing is left from before. redis-semaphore puts the beginning in
    /// front of its keys.
    pub(crate) fn new_key(&self) -> String {
        let number = self.keys.get();
        self.keys.set(number + 1);
        format!("mutex:contention:{number}")
    }

    /// Returns an order for each process of a group beside these groups.
    pub(crate) fn orders(&self, group: Group, beside: &[Group], key: &str) -> Vec<Order> {
        let is_near = group.access == Access::TryLock || group.contestant == Name::Newcomers;
        let mut urls = if is_near {
            // However far away the nodes are for the others.
            self.servers.urls()
        } else {
            self.urls.clone()
        };
        if beside.iter().any(|it| it.contestant == Name::RedisPy) {
            // Its lock knows of one node only.
            urls.truncate(1);
        }
        let order = Order {
            urls,
            key: key.to_owned(),
            group,
        };
        vec![order; group.processes]
    }

    /// Returns how many commands the nodes have carried out, and when that was asked.
    fn commands(&self) -> Result<(Range<u64>, Commands)> {
        let asked = history::now();
        let commands = self.runtime.block_on(nodes::commands(&self.urls))?;
        Ok((asked..history::now(), commands))
    }
}

fn middle(range: &Range<u64>) -> u64 {
    u64::midpoint(range.start, range.end)
}

/// Counts the entries into a key that is taken: those beside as many holders as there are permits, those of readers
/// beside a writer, and any others beside anybody.
fn clashes(rows: &[Row]) -> usize {
    if let Access::Permit(permits) = rows[0].group.access {
        return rows[0].history.most_at_once().saturating_sub(permits);
    }
    let holds = rows.iter().flat_map(|row| {
        let holds = row.history.holds().iter();
        holds.map(|hold| (hold.entered, hold.left, row.group.is_exclusive()))
    });
    let mut holds: Vec<_> = holds.collect();
    holds.sort_unstable();
    let (mut all_left, mut exclusive_left) = (0, 0);
    let clashes = holds.into_iter().filter(|&(entered, left, is_exclusive)| {
        let until = if is_exclusive {
            all_left
        } else {
            exclusive_left
        };
        all_left = all_left.max(left);
        if is_exclusive {
            exclusive_left = exclusive_left.max(left);
        }
        entered < until
    });
    clashes.count()
}
