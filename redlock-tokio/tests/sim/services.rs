//! The tables of each `Redlock`: within their limits at each look, and bounded by what is alive.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_tokio::{Redlock, Tables};

use crate::{
    host::Host,
    node::Client,
    requests::{Alive, Requests, ServiceId},
    rng::Rng,
};

/// The most requests that users let wait for a key by options of their own.
pub(crate) const MOST_WAITERS_OF_TERMS: usize = 2;

/// What the builder of a `Redlock` is told beside the defaults of its locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct House {
    pub(crate) max_waiters_total: usize,
    pub(crate) max_waiters_per_key: usize,
    /// The defaults if `None`.
    pub(crate) handover_for: Option<Duration>,
    pub(crate) poller_share: Option<u8>,
}

/// A `Redlock`, as its users see it.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    pub(crate) is_notified: bool,
    pub(crate) redlock: Redlock,
    pub(crate) house: House,
    /// When its shutdown began, in true time. `u64::MAX` before.
    closing: Arc<AtomicU64>,
}

/// All `Redlock`s that exist.
#[derive(Default)]
pub(crate) struct Services(Vec<Watched>);

struct Watched {
    id: ServiceId,
    host: Arc<Host>,
    house: House,
    tables: Box<dyn Fn() -> Option<Tables> + Send + Sync>,
}

impl House {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self {
            max_waiters_total: rng.pick(&[65_536, 65_536, 3, 1]),
            max_waiters_per_key: rng.pick(&[1024, 1024, 5, 2]),
            handover_for: rng
                .pick(&[None, None, Some(0), Some(5), Some(100), Some(10_000)])
                .map(Duration::from_millis),
            poller_share: rng.pick(&[None, None, None, Some(0), Some(20), Some(100)]),
        }
    }
}

impl Service {
    pub(crate) fn new(client: Client, redlock: Redlock, house: House) -> Self {
        Self {
            id: client.service,
            is_notified: client.is_notified,
            redlock,
            house,
            closing: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// Notes that the shutdown begins.
    pub(crate) fn close(&self, at: u64) {
        self.closing.store(at, Relaxed);
    }

    /// Returns when the shutdown began, in true time.
    pub(crate) fn closed_at(&self) -> Option<u64> {
        let at = self.closing.load(Relaxed);
        (at < u64::MAX).then_some(at)
    }
}

impl Services {
    /// Watches the tables of a `Redlock`, until it is gone.
    pub(crate) fn watch(&mut self, host: &Arc<Host>, service: &Service) {
        self.0.push(Watched {
            id: service.id,
            host: Arc::clone(host),
            house: service.house,
            tables: Box::new(service.redlock.tables()),
        });
    }

    /// Forgets the `Redlock`s of a process that has ended.
    pub(crate) fn forget(&mut self, host: &Arc<Host>) {
        self.0.retain(|it| !Arc::ptr_eq(&it.host, host));
    }

    /// Checks the limits of the queues. Returns what exceeds them.
    pub(crate) fn check_limits(&mut self) -> Vec<String> {
        self.check(Watched::beyond_limits)
    }

    /// Checks that the tables have nothing that nobody needs. Requests that ended before `since` have nothing in them
    /// any more. Returns what they have.
    pub(crate) fn check_sizes(
        &mut self,
        requests: &Requests,
        since: u64,
        is_quiet: bool,
    ) -> Vec<String> {
        self.check(|it, tables| {
            // A process that stands still cleans nothing up.
            if it.host.stood_still_since(since) {
                return None;
            }
            let alive = requests.alive(it.id, since);
            beyond_need(tables, alive, is_quiet)
        })
    }

    /// Forgets what is gone, and what has failed, since it would fail again and again.
    fn check(&mut self, check: impl Fn(&Watched, &Tables) -> Option<String>) -> Vec<String> {
        let mut failures = Vec::new();
        self.0.retain(|it| {
            let Some(tables) = (it.tables)() else {
                return false;
            };
            let failure = check(it, &tables);
            let is_good = failure.is_none();
            failures.extend(failure.map(|text| format!("{}: {text}: {tables:?}", it.host.name())));
            is_good
        });
        failures
    }
}

impl Watched {
    fn beyond_limits(&self, tables: &Tables) -> Option<String> {
        let House {
            max_waiters_total,
            max_waiters_per_key,
            ..
        } = self.house;
        let of_key = max_waiters_per_key.max(MOST_WAITERS_OF_TERMS);
        if tables.waiting > max_waiters_total {
            return Some(format!("more than {max_waiters_total} requests wait"));
        }
        if tables.waiting_for_one_key > of_key {
            return Some(format!("more than {of_key} requests wait for a key"));
        }
        let is_counted = tables.waiting_for_one_key.max(tables.several) <= tables.waiting;
        (!is_counted).then(|| "the queue counts too few waiters".to_owned())
    }
}

/// Returns why the tables have more than what is alive needs.
fn beyond_need(tables: &Tables, alive: Alive, is_quiet: bool) -> Option<String> {
    let Alive { requests, keys } = alive;
    if tables.keys > keys {
        return Some(format!("more keys than the {keys} of all requests"));
    }
    if tables.deadlines > requests {
        return Some(format!("more deadlines than {requests} requests"));
    }
    if is_quiet && tables.owed > 0 {
        return Some("releases wait, and all nodes can be reached".to_owned());
    }
    None
}

/// Returns what the tables have after a shutdown, in which all requests have ended. `holds` handles of leases are in
/// other hands.
pub(crate) fn left_after_shutdown(tables: &Tables, holds: usize) -> Option<String> {
    let Tables {
        keys,
        waiting,
        several,
        deadlines,
        owed,
        under_way,
        handles,
        ..
    } = *tables;
    let entries = keys + waiting + several + deadlines + owed + under_way;
    // The `Redlock` itself, and tasks that were aborted and have not run since.
    let is_left = entries > 0 || handles > holds + FEW;
    is_left.then(|| format!("left after a shutdown, with {holds} holds in other hands: {tables:?}"))
}

/// How many handles may be left in a process that ends its last tasks.
const FEW: usize = 4;
