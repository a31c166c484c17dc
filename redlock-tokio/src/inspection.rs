use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use redlock_core::Quorum;

use crate::{
    Holder, Key, NodeError, Objection, key,
    node::{KeyState, Occupant},
    shown_time::ShownTime,
};

/// The answers of all nodes to the question who has a key. Made by [`Redlock::inspect`](crate::Redlock::inspect).
///
/// All of it is advice: a lock may have changed hands since then. `Display` shows it in several lines.
#[derive(Clone, Debug)]
pub struct Inspection {
    key: Key,
    quorum: Quorum,
    nodes: Vec<InspectedNode>,
}

/// The answer of one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InspectedNode {
    /// The node's address, without credentials.
    pub address: Arc<str>,
    /// The state of the key there, or why the node did not answer.
    pub state: Result<KeyState, NodeError>,
    /// Why the node has no vote, if it answered and has none. It may have forgotten a lock that is still held, or keep
    /// one that its holder has lost, so its state does not count for the verdict.
    pub objection: Option<Objection>,
}

/// The state of a key, or of one permit, according to all nodes together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// A majority of nodes that have a vote has the key for nobody, neither for one client nor for readers.
    Free,
    /// Nobody has the key itself, and permits of the semaphore with this key are taken. See [`Inspection::permits`].
    Permits {
        /// How many are taken.
        taken: usize,
    },
    /// A majority of nodes has the key for this client. Only nodes that have a vote count.
    Held {
        /// The client.
        by: Holder,
        /// How long a majority will have the key, unless the lock is extended or released.
        remaining: Duration,
    },
    /// Readers share the key: each of them is known to a majority, counted in the same way.
    Shared {
        /// The readers, with the time for which a majority will know them.
        readers: Vec<(Holder, Duration)>,
    },
    /// The nodes differ, so that nobody has a majority, not even together with the nodes that did not answer or have no vote.
    /// Clients that ask at the same moment cause this for a moment.
    Split,
    /// Too many nodes did not answer, or have no vote: a client may have a majority together with them.
    Unknown,
    /// So many nodes have something under this name that is no lock (of another type, or without an end) that no client can
    /// lock it.
    NotALock,
}

impl Inspection {
    pub(crate) fn new(key: Key, quorum: Quorum, nodes: Vec<InspectedNode>) -> Self {
        Self { key, quorum, nodes }
    }

    /// Returns the key, with the prefix.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns what each node had, in the order in which the nodes were given.
    #[must_use]
    pub fn nodes(&self) -> &[InspectedNode] {
        &self.nodes
    }

    /// Returns who holds the lock of this key, or the readers that share it, or how many permits are taken.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let readers = self.readers();
        if !readers.is_empty() {
            return Verdict::Shared { readers };
        }
        let verdict = self.judge(|state| state.lock.iter().chain(&state.readers));
        if verdict != Verdict::Free {
            return verdict;
        }
        let permits = self.permits();
        let taken = permits.values().filter(|it| **it != Verdict::Free);
        match taken.count() {
            0 => Verdict::Free,
            _ if permits.values().any(|it| *it == Verdict::Unknown) => Verdict::Unknown,
            taken => Verdict::Permits { taken },
        }
    }

    /// Returns who holds the permits of the semaphore of this key, by their slots. Slots that no node has are left out.
    #[must_use]
    pub fn permits(&self) -> BTreeMap<usize, Verdict> {
        let slots: BTreeSet<_> = self.states().flat_map(|it| it.permits.keys()).collect();
        let verdict = |slot| self.judge(|state| state.permits.get(slot).into_iter());
        slots
            .into_iter()
            .map(|slot| (*slot, verdict(slot)))
            .collect()
    }

    /// Returns whether a writer waits, and has marked the key so that no more readers get in.
    #[must_use]
    pub fn has_waiting_writer(&self) -> bool {
        let marked = self.states().filter(|it| it.waiting_writer.is_some());
        marked.count() >= self.quorum.votes()
    }

    /// Returns the processes that stand in the line of the key, or of the semaphore, by the names of their clients: the first
    /// comes first. Writers are among them, and readers are not, since they stand in no line. A process that died may be there
    /// for some seconds, or for longer if no other process waits at the same node.
    #[must_use]
    pub fn waiting(&self) -> &[Option<Arc<str>>] {
        let lines = self.states().map(|it| &it.waiting[..]);
        // Only one node has the line, but for those that have moved.
        lines.max_by_key(|it| it.len()).unwrap_or_default()
    }

    /// Returns all clients that have the key or a permit of it on any node, in the order of their values.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        let occupants = self.states().flat_map(occupants);
        let holders: BTreeSet<_> = occupants.filter_map(|(it, _)| it.holder.clone()).collect();
        holders.into_iter().collect()
    }

    /// Keeps only what the nodes have for these clients. [`force_unlock`](crate::Redlock::force_unlock) then deletes nothing
    /// else.
    pub fn retain(&mut self, mut keep: impl FnMut(&Holder) -> bool) {
        let mut keep = |it: &Occupant| it.holder.as_ref().is_some_and(&mut keep);
        for node in &mut self.nodes {
            let Ok(state) = &mut node.state else { continue };
            state.lock.take_if(|it| !keep(it));
            state.readers.retain(&mut keep);
            state.permits.retain(|_, it| keep(it));
        }
    }

    /// Leaves out what the nodes have under the key itself.
    pub(crate) fn retain_permits(&mut self) {
        for state in self
            .nodes
            .iter_mut()
            .filter_map(|it| it.state.as_mut().ok())
        {
            (state.lock, state.readers) = (None, Vec::new());
        }
    }

    /// Returns what some node has for a client: the slot if it is a permit, whether it is a reader, and the longest time
    /// that it will live.
    pub(crate) fn found(&self) -> BTreeMap<Found, Duration> {
        let mut found = BTreeMap::new();
        for (occupant, place) in self.states().flat_map(occupants) {
            let Some(holder) = occupant.holder.clone() else {
                continue;
            };
            let remaining = occupant.remaining.unwrap_or(Duration::MAX);
            let longest = found.entry(Found { place, holder }).or_insert(remaining);
            *longest = remaining.max(*longest);
        }
        found
    }

    fn states(&self) -> impl Iterator<Item = &KeyState> {
        self.nodes
            .iter()
            .filter_map(|node| node.state.as_ref().ok())
    }

    /// Returns the states on nodes that have a vote.
    fn voters(&self) -> impl Iterator<Item = &KeyState> {
        let voters = self.nodes.iter().filter(|node| node.objection.is_none());
        voters.filter_map(|node| node.state.as_ref().ok())
    }

    /// Returns the readers that a majority knows.
    fn readers(&self) -> Vec<(Holder, Duration)> {
        let mut times: BTreeMap<&Holder, Vec<Duration>> = BTreeMap::new();
        let readers = self.voters().flat_map(|state| &state.readers);
        for (holder, remaining) in readers.filter_map(lock_of) {
            times.entry(holder).or_default().push(remaining);
        }
        let known =
            |(holder, times): (&Holder, _)| Some((holder.clone(), self.majority_of(times)?));
        times.into_iter().filter_map(known).collect()
    }

    /// Judges what each node has. Whether it is a lock or nothing, it counts only if the node has a vote.
    fn judge<'a, I>(&'a self, of: impl Fn(&'a KeyState) -> I) -> Verdict
    where
        I: Iterator<Item = &'a Occupant>,
    {
        let mut times: BTreeMap<&Holder, Vec<Duration>> = BTreeMap::new();
        let (mut voters, mut free) = (0, 0);
        for state in self.voters() {
            voters += 1;
            free += usize::from(of(state).next().is_none());
            for (holder, remaining) in of(state).filter_map(lock_of) {
                times.entry(holder).or_default().push(remaining);
            }
        }
        let blocked = self.states().flat_map(&of);
        let blocked = blocked.filter(|it| lock_of(it).is_none()).count();
        let most = times.values().map(Vec::len).max().unwrap_or(0);
        let others = self.nodes.len() - voters;
        let votes = self.quorum.votes();
        let held = times.into_iter().find_map(|(holder, times)| {
            let remaining = self.majority_of(times)?;
            Some(Verdict::Held {
                by: holder.clone(),
                remaining,
            })
        });
        match held {
            Some(held) => held,
            None if free >= votes => Verdict::Free,
            None if blocked > self.nodes.len() - votes => Verdict::NotALock,
            None if voters < votes || most + others >= votes => Verdict::Unknown,
            None => Verdict::Split,
        }
    }

    /// Returns for how long a majority has what single nodes have for these times. `None` if no majority has it.
    fn majority_of(&self, mut times: Vec<Duration>) -> Option<Duration> {
        times.sort_unstable_by(|one, other| other.cmp(one));
        times.get(self.quorum.votes() - 1).copied()
    }
}

/// Something that a client has on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) holder: Holder,
}

/// Where it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Under the key.
    Lock,
    /// Among the readers of the key.
    Readers,
    /// Under the key of a slot.
    Slot(usize),
}

pub(crate) fn occupants(state: &KeyState) -> impl Iterator<Item = (&Occupant, Place)> {
    let lock = state.lock.iter().map(|it| (it, Place::Lock));
    let readers = state.readers.iter().map(|it| (it, Place::Readers));
    let permits = state
        .permits
        .iter()
        .map(|(slot, it)| (it, Place::Slot(*slot)));
    lock.chain(readers).chain(permits)
}

/// Returns who has it, and for how long, if it can be a lock.
fn lock_of(occupant: &Occupant) -> Option<(&Holder, Duration)> {
    Some((occupant.holder.as_ref()?, occupant.remaining?))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Held { by, remaining } => {
                write!(f, "held by {by} for another {}", ShownTime(*remaining))
            }
            Self::Shared { readers } => {
                let s = if readers.len() == 1 { "" } else { "s" };
                write!(f, "shared by {} reader{s}:", readers.len())?;
                for (index, (holder, remaining)) in readers.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "," };
                    let remaining = ShownTime(*remaining);
                    write!(f, "{separator} {holder} for another {remaining}")?;
                }
                Ok(())
            }
            Self::Split => f.write_str("split: the nodes differ, and nobody has a majority"),
            Self::Permits { taken: 1 } => f.write_str("1 permit is taken"),
            Self::Permits { taken } => write!(f, "{taken} permits are taken"),
            Self::Unknown => f.write_str("unknown: too many nodes do not answer, or have no vote"),
            Self::NotALock => f.write_str(
                "not a lock: the nodes have a key of another type, or one without an end",
            ),
        }
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", key::shown(self.key.as_bytes()), self.verdict())?;
        for (slot, verdict) in self.permits() {
            write!(f, "\npermit #{slot}: {verdict}")?;
        }
        if self.has_waiting_writer() {
            write!(f, "\na writer waits")?;
        }
        for (index, label) in self.waiting().iter().enumerate() {
            let separator = if index == 0 { "\nin line: " } else { ", " };
            write!(f, "{separator}{}", label.as_deref().unwrap_or("no label"))?;
        }
        for node in &self.nodes {
            write!(f, "\n  {}: ", node.address)?;
            match &node.state {
                Ok(state) => show(f, state)?,
                Err(error) => write!(f, "{error}")?,
            }
            if let Some(objection) = &node.objection {
                write!(f, "; has no vote: {objection}")?;
            }
        }
        Ok(())
    }
}

/// Shows what one node has, in one line.
fn show(f: &mut fmt::Formatter<'_>, state: &KeyState) -> fmt::Result {
    let mut is_first = true;
    for (occupant, place) in occupants(state) {
        let separator = if is_first { "" } else { ", " };
        is_first = false;
        f.write_str(separator)?;
        match place {
            Place::Lock => {}
            Place::Readers => f.write_str("reader ")?,
            Place::Slot(slot) => write!(f, "permit #{slot} ")?,
        }
        match &occupant.holder {
            Some(holder) => write!(f, "{holder}")?,
            None => f.write_str("a key of another type")?,
        }
        match occupant.remaining {
            Some(remaining) => write!(f, " for another {}", ShownTime(remaining))?,
            None => f.write_str(", without an end")?,
        }
    }
    if is_first {
        f.write_str("nothing")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(9);

    /// What three nodes say. `None` does not answer.
    fn inspection(states: [Option<KeyState>; 3]) -> Inspection {
        let nodes = states.map(|state| InspectedNode {
            address: "node".into(),
            state: state.ok_or(NodeError::TimedOut(TIME)),
            objection: None,
        });
        Inspection::new(
            Key::new("key").unwrap(),
            Quorum::majority(3).unwrap(),
            nodes.into(),
        )
    }

    fn occupant(name: &str) -> Occupant {
        Occupant::new(Some(Holder::new(name.as_bytes())), Some(TIME))
    }

    fn locked_by(name: &str) -> Option<KeyState> {
        Some(KeyState {
            lock: Some(occupant(name)),
            ..KeyState::default()
        })
    }

    fn shared_by(name: &str) -> Option<KeyState> {
        Some(KeyState {
            readers: vec![occupant(name)],
            ..KeyState::default()
        })
    }

    fn nothing() -> Option<KeyState> {
        Some(KeyState::default())
    }

    #[test]
    fn a_lock_that_may_rest_on_a_node_without_an_answer_is_unknown() {
        for seen in [locked_by("one"), shared_by("one")] {
            let of = |another, last| inspection([seen.clone(), another, last]).verdict();
            assert_eq!(of(nothing(), None), Verdict::Unknown);
            assert_eq!(of(locked_by("two"), None), Verdict::Unknown);
            assert_eq!(of(locked_by("two"), locked_by("three")), Verdict::Split);
            assert_eq!(of(nothing(), nothing()), Verdict::Free);
        }
        let silent = inspection([nothing(), nothing(), None]);
        assert_eq!(silent.verdict(), Verdict::Free);
    }

    #[test]
    fn a_key_with_a_different_reader_on_each_node_is_not_free() {
        let differ = [shared_by("one"), shared_by("two"), nothing()];
        assert_eq!(inspection(differ).verdict(), Verdict::Split);
    }
}
