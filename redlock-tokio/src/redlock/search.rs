//! For people on call: the locks that are held, by whomever and under whatever key.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, future::join_all, stream};

use super::{
    Redlock,
    operations::{LOOK_UP_LIMIT, LookUp},
};
use crate::{
    Inspection, Key, NodeError, NodeReport, Objection,
    inspection::{Place, occupants},
    key::SlotKeys,
    node::KeyState,
};

/// How many keys are inspected by one request. A server does nothing else while it looks at their values.
const TOGETHER: usize = 128;

/// How many semaphores are inspected at the same time. Each costs a server as much as 30 locks.
const AT_ONCE: usize = 16;

/// For people on call.
impl Redlock {
    /// Searches all nodes for locks, readers and permits whose keys begin with the [prefix](crate::RedlockBuilder::prefix).
    /// Without a prefix, each string with an end looks like a lock. Asks no node: see [`Search::next`].
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let mut search = redlock.search();
    /// let mut keys = Vec::new();
    /// while let Some(step) = search.next().await {
    ///     match step {
    ///         Ok(found) => keys.extend(found.iter().map(|it| it.key().clone())),
    ///         Err(report) => eprintln!("{}: {}", report.address, report.objection),
    ///     }
    /// }
    /// assert_eq!(keys, [guard.key().clone()]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn search(&self) -> Search {
        Search {
            redlock: self.clone(),
            node: 0,
            cursor: 0,
            searched: BTreeSet::new(),
        }
    }
}

/// A search for locks on one node after the other. Made by [`Redlock::search`].
#[derive(Debug)]
pub struct Search {
    redlock: Redlock,
    /// The node of the next step, and where to go on there.
    node: usize,
    cursor: u64,
    /// The nodes that were searched to their end.
    searched: BTreeSet<usize>,
}

impl Search {
    /// Returns the address of the node that the next step asks. `None` at the end of the search.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<str>> {
        let lane = self.redlock.client.lanes.get(self.node);
        lane.map(|it| &it.address)
    }

    /// Carries out a step: asks one node for its next keys, and all nodes about each lock among them. `None` at the end of
    /// the search.
    ///
    /// A lock that is held during the whole search is found, and as a rule once: it belongs to the first node that has
    /// it, and the other nodes skip it. `SCAN` may return a key again in a later step, as when a server resizes its
    /// table meanwhile. Such a lock is found again, and so is one that moves to an earlier node, or whose node fails.
    /// Collect the [keys](Inspection::key) in a set if each must count once. A lock that only a minority has, and which
    /// is therefore free, is found too. A lock and a semaphore with the same key are found each by itself, the lock without
    /// the permits. As with [`inspect`](Redlock::inspect), all of it is advice.
    ///
    /// Costs two round trips, and one for each 16 semaphores. A server looks at a hundred names in a step. Only the locks among
    /// them are in memory, and nothing is kept from step to step, however many there are in all. The embedded nodes have
    /// a single step each.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call repeats the step.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer, if this client lacks the right to `SCAN`, or if a node of your own does not
    /// implement [`search`](crate::node::Session::search). The next step then asks the next node. If a majority fails,
    /// locks may be missing.
    pub async fn next(&mut self) -> Option<Result<Vec<Inspection>, NodeReport>> {
        let client = &self.redlock.client;
        let lane = client.lanes.get(self.node)?;
        let prefix: Box<[u8]> = client.prefix.as_bytes().into();
        let cursor = self.cursor;
        let limit = LOOK_UP_LIMIT.max(client.node_timeout);
        let ask = lane.ask(&client.clock, limit, move |session| {
            session.search(&prefix, cursor)
        });
        let found = match ask.await {
            Ok((found, _)) => found,
            Err(error) => {
                let address = Arc::clone(&lane.address);
                self.go_on(None);
                return Some(Err(NodeReport {
                    address,
                    objection: Objection::Failed(error),
                }));
            }
        };
        let prefix = client.prefix.as_bytes();
        let names = found.keys.iter().filter_map(|it| it.strip_prefix(prefix));
        let mut locks = BTreeSet::new();
        let mut semaphores: BTreeMap<Box<[u8]>, Vec<Place>> = BTreeMap::new();
        for name in names {
            match SlotKeys::parse(name) {
                Some((semaphore, slot)) => {
                    let slots = semaphores.entry(semaphore.into()).or_default();
                    slots.push(Place::Slot(slot.index()));
                }
                // A name that no lock can have is an error.
                None => locks.extend(Key::with_prefix(&client.prefix, name)),
            }
        }
        let locks: Vec<_> = locks.into_iter().collect();
        let mut new = Vec::new();
        let inspect = |keys| {
            let look_up: LookUp = |session, keys| session.look_up_locks(keys);
            self.redlock.inspect_all(keys, look_up)
        };
        for locks in locks.chunks(TOGETHER) {
            let mut inspected = inspect(locks).await;
            let mut nodes = inspected.iter().flat_map(Inspection::nodes);
            // One key that this client has no right to spoils the request.
            if nodes.any(|it| matches!(it.state, Err(NodeError::Refused { .. }))) {
                let each = join_all(locks.chunks(1).map(inspect)).await;
                inspected = each.into_iter().flatten().collect();
            }
            let inspected = inspected.into_iter();
            new.extend(inspected.filter(|it| self.is_new(it, &[Place::Lock])));
        }
        let inspected = stream::iter(semaphores).map(|(key, slots)| {
            let redlock = self.redlock.clone();
            async move { Some((redlock.inspect(key).await.ok()?, slots)) }
        });
        let inspected: Vec<_> = inspected.buffered(AT_ONCE).collect().await;
        for (mut inspection, slots) in inspected.into_iter().flatten() {
            inspection.retain_permits();
            if self.is_new(&inspection, &slots) {
                new.push(inspection);
            }
        }
        new.sort_by(|one, other| one.key().cmp(other.key()));
        if found.next.is_none() {
            self.searched.insert(self.node);
        }
        self.go_on(found.next);
        Some(Ok(new))
    }

    /// Returns whether one of these names is the first of its lock, on the first node that has the lock and could be searched.
    fn is_new(&self, inspection: &Inspection, places: &[Place]) -> bool {
        let first_of = |node: usize| {
            let state = inspection.nodes()[node].state.as_ref();
            state.ok().and_then(first_name)
        };
        let mut before = self.searched.iter();
        let has_first = first_of(self.node).is_some_and(|it| places.contains(&it));
        has_first && before.all(|node| first_of(*node).is_none())
    }

    fn go_on(&mut self, next: Option<u64>) {
        self.cursor = next.unwrap_or_default();
        self.node += usize::from(next.is_none());
    }
}

/// Returns whether the first of the names that a lock has on a node is its own, or which slot's. `None` if it has nothing
/// there that ends.
fn first_name(state: &KeyState) -> Option<Place> {
    let mut occupants = occupants(state);
    let (_, place) = occupants.find(|(it, _)| it.remaining.is_some())?;
    Some(match place {
        Place::Lock | Place::Readers => Place::Lock,
        slot @ Place::Slot(_) => slot,
    })
}
