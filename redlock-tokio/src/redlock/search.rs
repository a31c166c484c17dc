//! For people on call: the locks that are held, by whomever and under whatever key.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, stream};

use super::{Redlock, operations::LOOK_UP_LIMIT};
use crate::{
    Inspection, NodeReport, Objection,
    inspection::{Place, occupants},
    key::SlotKeys,
    node::KeyState,
};

/// How many keys are inspected at the same time. A round trip then costs little, and the servers have time for locks.
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
    /// is therefore free, is found too. As with [`inspect`](Redlock::inspect), all of it is advice.
    ///
    /// Costs a round trip, and one for each 16 keys. A server looks at a hundred names in a step. Only the locks among
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
        let names: BTreeSet<Box<[u8]>> = names.map(Into::into).collect();
        let inspected = stream::iter(names).map(|name| {
            let redlock = self.redlock.clone();
            async move {
                let (key, place) = match SlotKeys::parse(&name) {
                    Some((semaphore, slot)) => (semaphore, Place::Slot(slot.index())),
                    None => (&*name, Place::Lock),
                };
                // A name that no lock can have is an error.
                Some((redlock.inspect(key).await.ok()?, place))
            }
        });
        let inspected: Vec<_> = inspected.buffered(AT_ONCE).collect().await;
        let inspected = inspected.into_iter().flatten();
        let new = inspected.filter(|(it, place)| self.is_new(it, *place));
        let new = new.map(|(inspection, _)| inspection).collect();
        if found.next.is_none() {
            self.searched.insert(self.node);
        }
        self.go_on(found.next);
        Some(Ok(new))
    }

    /// Returns whether this name is the first of its lock, on the first node that has the lock and could be searched.
    fn is_new(&self, inspection: &Inspection, place: Place) -> bool {
        let first_of = |node: usize| {
            let state = inspection.nodes()[node].state.as_ref();
            state.ok().and_then(first_name)
        };
        let mut before = self.searched.iter();
        first_of(self.node) == Some(place) && before.all(|node| first_of(*node).is_none())
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
