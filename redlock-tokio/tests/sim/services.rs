//! The tables of each `Redlock`: within their limits at each look, and bounded by what is alive.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redlock_tokio::{Redlock, Tables};

use crate::{
    host::Host,
    requests::{Alive, Requests, ServiceId},
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

/// All `Redlock`s that exist. Clones are handles of the same list.
#[derive(Clone, Default)]
pub(crate) struct Services(Arc<Mutex<Vec<Watched>>>);

struct Watched {
    id: ServiceId,
    host: Arc<Host>,
    house: House,
    tables: Box<dyn Fn() -> Option<Tables> + Send + Sync>,
}

/// What is known of the world when somebody looks at the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Requests that ended before have nothing in the tables any more.
    pub(crate) since: u64,
    pub(crate) is_quiet: bool,
}

impl Services {
    /// Watches the tables of a `Redlock`, until it is gone.
    pub(crate) fn watch(&self, id: ServiceId, host: &Arc<Host>, house: House, redlock: &Redlock) {
        self.lock().push(Watched {
            id,
            host: Arc::clone(host),
            house,
            tables: Box::new(redlock.tables()),
        });
    }

    /// Forgets the `Redlock`s of a process that has ended.
    pub(crate) fn forget(&self, host: &Arc<Host>) {
        self.lock().retain(|it| !Arc::ptr_eq(&it.host, host));
    }

    /// Checks the limits of the queues. Returns what exceeds them.
    pub(crate) fn check_limits(&self) -> Vec<String> {
        self.check(Watched::beyond_limits)
    }

    /// Checks that the tables have nothing that nobody needs. Returns what they have.
    pub(crate) fn check_sizes(&self, requests: &Requests, moment: Moment) -> Vec<String> {
        self.check(|it, tables| {
            // A process that stands still cleans nothing up.
            if it.host.stood_still_since(moment.since) {
                return None;
            }
            let alive = requests.alive(it.id, moment.since);
            beyond_need(tables, alive, moment.is_quiet)
        })
    }

    /// Forgets what is gone, and what has failed, since it would fail again and again.
    fn check(&self, check: impl Fn(&Watched, &Tables) -> Option<String>) -> Vec<String> {
        let mut failures = Vec::new();
        self.lock().retain(|it| {
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

    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.0.lock().expect("no code panics under this lock")
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
