use std::sync::{Arc, Weak};

use crate::{
    Redlock,
    engine::{lane::Outbox, queue::QueueTables, requests::Client},
};

/// How many entries the tables of one [`Redlock`] have, for tests that look for entries that nobody needs.
/// The memory of a [`Redlock`] for keys that are not in use has a fixed size, and is not part of this.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tables {
    /// The keys that are held or wanted.
    pub keys: usize,
    /// The requests that wait behind another request.
    pub waiting: usize,
    /// The requests that wait for the key that most requests wait for.
    pub waiting_for_one_key: usize,
    /// The requests that wait for several keys.
    pub several: usize,
    /// The deadlines of all requests.
    pub deadlines: usize,
    /// The releases that wait for a node to come back, on all nodes.
    pub owed: usize,
    /// The releases that are on their way to a node.
    pub under_way: usize,
    /// The leases that exist, and the handles of the [`Redlock`].
    pub handles: usize,
}

impl Redlock {
    /// Returns a function that counts the entries of the tables, until the last handle of this [`Redlock`] and the
    /// last of its leases are gone. The function keeps none of them.
    #[doc(hidden)]
    pub fn tables(&self) -> impl Fn() -> Option<Tables> + Send + Sync + use<> {
        let client: Weak<Client> = Arc::downgrade(&self.client);
        move || client.upgrade().map(|client| count(&client))
    }
}

fn count(client: &Arc<Client>) -> Tables {
    let engine = client.engine.lock();
    let QueueTables {
        keys,
        waiting,
        waiting_for_one_key,
        several,
    } = engine.queue.tables();
    let lanes = || client.lanes.iter();
    Tables {
        keys,
        waiting,
        waiting_for_one_key,
        several,
        deadlines: engine.deadlines.count(),
        owed: lanes().map(|lane| lane.counters.owed()).sum(),
        under_way: lanes().map(|lane| lane.counters.in_flight()).sum::<usize>()
            + engine.outboxes.iter().map(Outbox::releases).sum::<usize>(),
        // One is `client`.
        handles: Arc::strong_count(client) - 1,
    }
}
