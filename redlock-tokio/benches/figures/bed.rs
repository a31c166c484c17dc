use std::{cell::Cell, rc::Rc, thread, time::Duration};

use redlock_kit::{Proxy, RedisServers};
use tokio::runtime::Runtime;

use crate::{
    Result,
    contestants::{Access, Name},
    crew::Crew,
    group::{All, Group, Order, Row},
    history::{History, TaskHistory, now},
    nodes, runtime,
};

pub(crate) const NODES: usize = 5;

/// The servers, and the ways to them.
pub(crate) struct Bed {
    pub(crate) urls: Vec<String>,
    /// They end with this.
    pub(crate) servers: RedisServers,
    pub(crate) runtime: Runtime,
    keys: Cell<usize>,
    /// The ways to servers at a distance.
    _proxies: Vec<Proxy>,
}

/// What happened to groups that wanted a key.
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    /// How often somebody entered who must not.
    pub(crate) clashes: usize,
}

impl Bed {
    /// Starts servers that are as near as the machine allows.
    pub(crate) fn near() -> Result<Self> {
        Self::at([Duration::ZERO; NODES])
    }

    /// Starts servers at these distances: the time of a round trip.
    pub(crate) fn at(distances: [Duration; NODES]) -> Result<Self> {
        let servers = RedisServers::spawn(NODES)?;
        let mut urls = servers.urls();
        let mut proxies = Vec::new();
        for ((server, url), distance) in servers.iter().zip(&mut urls).zip(distances) {
            if !distance.is_zero() {
                let proxy = Proxy::spawn(server.address())?;
                proxy.replies().delay(distance);
                *url = proxy.url();
                proxies.push(proxy);
            }
        }
        Ok(Self {
            urls,
            servers,
            runtime: runtime()?,
            keys: Cell::new(0),
            _proxies: proxies,
        })
    }

    /// Lets all groups want one key for this long.
    pub(crate) fn measure(&self, groups: &[Group], time: Duration) -> Result<Outcome> {
        let commands = || self.runtime.block_on(nodes::commands(&self.urls));
        let play = |crew: &mut Crew| {
            let before = commands()?;
            crew.start()?;
            let start = now();
            thread::sleep(time);
            let window = start..now();
            Ok((window, commands()? - before))
        };
        let ((window, commands), processes) = self.play(groups, &self.new_key(), play)?;
        let all = Rc::new(All {
            history: History::new(processes.clone(), window.clone()),
            commands,
        });
        let mut processes = processes.into_iter();
        let rows = groups.iter().map(|&group| {
            let own = processes.by_ref().take(group.processes).collect();
            Row {
                group,
                history: History::new(own, window.clone()),
                all: Rc::clone(&all),
            }
        });
        let rows: Vec<_> = rows.collect();
        let clashes = clashes(&rows);
        Ok(Outcome { rows, clashes })
    }

    /// Starts the processes of these groups, and lets this happen to them once they are ready. Returns what it returns,
    /// and what the tasks of each process went through.
    pub(crate) fn play<T>(
        &self,
        groups: &[Group],
        key: &str,
        script: impl FnOnce(&mut Crew) -> Result<T>,
    ) -> Result<(T, Vec<Vec<TaskHistory>>)> {
        let orders = groups.iter().flat_map(|&group| {
            let is_near = group.access == Access::TryLock || group.contestant == Name::Newcomers;
            let order = Order {
                // However far away the nodes are for the others.
                urls: match is_near {
                    true => self.servers.urls(),
                    false => self.urls.clone(),
                },
                key: key.to_owned(),
                group,
            };
            vec![order; group.processes]
        });
        let mut crew = Crew::hire(&orders.collect::<Vec<_>>())?;
        let outcome = script(&mut crew)?;
        Ok((outcome, crew.stop()?))
    }

    /// Returns a key that was never used, so that nothing is left from before. redis-semaphore puts the beginning in
    /// front of its keys.
    pub(crate) fn new_key(&self) -> String {
        let number = self.keys.get();
        self.keys.set(number + 1);
        format!("mutex:contention:{number}")
    }
}

impl Outcome {
    /// Says what is wrong: a failure, or tasks that were in together and must not be.
    pub(crate) fn complaint(&self) -> Option<String> {
        let Row { group, all, .. } = &self.rows[0];
        match (self.clashes, group.contestant, group.access) {
            // It counts holders on each node, and so lets more in.
            (0, ..) | (_, Name::RedisSemaphore, Access::Permit(_)) => all.history.failure(),
            (clashes, ..) => Some(format!("{clashes} were in together with others")),
        }
    }
}

/// Counts the entries into a key that is taken: those beside as many holders as there are permits, those of readers
/// beside a writer, and any others beside anybody.
fn clashes(rows: &[Row]) -> usize {
    let first = &rows[0];
    if first.group.own_keys {
        return 0;
    }
    if let Access::Permit(permits) = first.group.access {
        return first.history.most_at_once().saturating_sub(permits);
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
