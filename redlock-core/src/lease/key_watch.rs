//! Watching a key that another client has: on which nodes it is free, and when it will be. A semaphore has several
//! keys, its slots, of which the waiter needs one. A lock is the case of one slot.

use alloc::{vec, vec::Vec};

use super::RoundId;
use crate::{NodeId, NodeSet, Quorum, Reply, Slot, SlotSet, Timestamp};

/// Everything that nodes have said about the key since the last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyWatch {
    /// The round of the last probe.
    pub(super) id: RoundId,
    quorum: Quorum,
    /// The slots that the waiter may ask for.
    pub(super) wanted: SlotSet,
    /// From when on each slot is free on each node, where that is known: all nodes for the first slot, and so on.
    /// [`Timestamp::MAX`] stands for a slot whose end is unknown.
    free_from: Vec<Option<Timestamp>>,
    /// For each slot, what follows from these.
    spans: Vec<Span>,
    /// The nodes that have not answered the last probe yet.
    asked: NodeSet,
    /// The slots that each of these nodes has sent a notification of since. Its answer may be older than that.
    doubted: Vec<SlotSet>,
    /// The nodes that would let a reader in but for the mark of a writer.
    marked: NodeSet,
    /// Whether marks do not matter.
    insists: bool,
}

/// When a quorum of nodes may have a slot for the waiter, by what is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Span {
    /// From when on the slot is free on a quorum, or `None` if too little is known.
    free_at: Option<Timestamp>,
    /// Until when so many nodes have the slot that the others are no quorum, or `None` if they are one.
    taken_until: Option<Timestamp>,
}

impl KeyWatch {
    /// Starts to watch so many slots with the probe of this round.
    pub(super) fn new(id: RoundId, quorum: Quorum, count: usize, wanted: SlotSet) -> Self {
        Self {
            id,
            quorum,
            wanted,
            free_from: vec![None; quorum.nodes() * count],
            spans: vec![Span::default(); count],
            asked: quorum.all(),
            doubted: vec![SlotSet::EMPTY; quorum.nodes()],
            marked: NodeSet::EMPTY,
            insists: false,
        }
    }

    /// Takes nodes for free on which only the mark of a writer is in the way of a reader.
    pub(super) fn insist(&mut self) {
        self.insists = true;
        for node in core::mem::take(&mut self.marked).iter() {
            self.set(node, Slot::FIRST, Some(Timestamp::ZERO));
        }
    }

    /// Takes the answer to the last probe. Returns the slots to probe on the node again, if any.
    pub(super) fn handle_reply(&mut self, node: NodeId, reply: Reply) -> Option<SlotSet> {
        let was_asked = self.asked.remove(node);
        if !was_asked || node.index() >= self.quorum.nodes() {
            return None;
        }
        let insists = self.insists;
        let free_from = |slot| match reply {
            Reply::Free => Some(Timestamp::ZERO),
            Reply::Marked { .. } if insists => Some(Timestamp::ZERO),
            Reply::Taken { until } | Reply::Marked { until } => Some(until),
            Reply::Slots { free, .. } if free.contains(slot) => Some(Timestamp::ZERO),
            Reply::Slots { next, until, .. } if next == slot => Some(until),
            Reply::Slots { .. } => Some(Timestamp::MAX),
            // The next scheduled probe asks the node again.
            _ => None,
        };
        let doubted = core::mem::take(&mut self.doubted[node.index()]);
        free_from(Slot::FIRST)?;
        let is_told = |slot: Slot| match reply {
            Reply::Slots { free, taken, .. } => free.contains(slot) || taken.contains(slot),
            _ => true,
        };
        self.marked.remove(node);
        if matches!(reply, Reply::Marked { .. }) && !insists {
            self.marked.insert(node);
        }
        for slot in self.slots() {
            if is_told(slot) && !doubted.contains(slot) {
                self.set(node, slot, free_from(slot));
            }
        }
        if doubted.is_empty() {
            return None;
        }
        self.asked.insert(node);
        Some(doubted)
    }

    /// Notes that a slot is gone from a node. Returns it if it is to be probed: if it was gone already, the
    /// notification may mean that another client has set it since.
    pub(super) fn handle_freed(&mut self, node: NodeId, slot: Slot) -> Option<SlotSet> {
        let was_free = *self.free_from.get(self.index(node, slot))? == Some(Timestamp::ZERO);
        // Readers may have left a key that is marked, and the mark may be there still.
        if was_free || self.asked.contains(node) || self.marked.contains(node) {
            return self.ask_again(node, [slot].into_iter().collect());
        }
        self.set(node, slot, Some(Timestamp::ZERO));
        None
    }

    /// Notes that anything may have changed on a node. Returns the slots to probe there now. If a probe is under way,
    /// its answer comes first.
    pub(super) fn handle_change(&mut self, node: NodeId) -> Option<SlotSet> {
        let all = self.slots().collect();
        self.ask_again(node, all)
    }

    fn ask_again(&mut self, node: NodeId, changed: SlotSet) -> Option<SlotSet> {
        if self.asked.contains(node) {
            let doubted = &mut self.doubted[node.index()];
            *doubted = doubted.union(changed);
            return None;
        }
        self.asked.insert(node);
        Some(changed)
    }

    /// Awaits the answers to a scheduled probe. Earlier answers count until they come.
    pub(super) fn await_scheduled(&mut self, id: RoundId) {
        self.id = id;
        self.asked = self.quorum.all();
        self.doubted.fill(SlotSet::EMPTY);
    }

    /// Returns from when on a slot is free on a quorum of nodes if no holder releases one before, or `None` if too
    /// little is known.
    pub(super) fn free_at(&self) -> Option<Timestamp> {
        let wanted = self.wanted.iter();
        wanted.filter_map(|slot| self.span(slot).free_at).min()
    }

    /// Returns the slots that are free on a quorum of nodes now.
    pub(super) fn free_slots(&self, now: Timestamp) -> SlotSet {
        let is_free = |slot: &Slot| self.span(*slot).free_at.is_some_and(|at| at <= now);
        self.wanted.iter().filter(is_free).collect()
    }

    /// Returns the slots to choose from now: those that are free on a quorum of nodes, or else those that may be.
    pub(super) fn best_slots(&self, now: Timestamp) -> SlotSet {
        let free = self.free_slots(now);
        if !free.is_empty() {
            return free;
        }
        let wanted = self.wanted.iter();
        wanted
            .filter(|slot| !self.is_slot_taken(*slot, now))
            .collect()
    }

    /// Returns whether too many nodes have each slot now for the others to be a quorum.
    pub(super) fn is_taken(&self, now: Timestamp) -> bool {
        let mut wanted = self.wanted.iter();
        wanted.all(|slot| self.is_slot_taken(slot, now))
    }

    fn is_slot_taken(&self, slot: Slot, now: Timestamp) -> bool {
        self.span(slot).taken_until.is_some_and(|until| now < until)
    }

    /// Returns whether so many nodes have the token of a writer that readers cannot get in, or `None` if too little is
    /// known.
    pub(super) fn has_writer(&self, now: Timestamp) -> Option<bool> {
        let mut open = self.marked.len();
        let mut closed = 0;
        for (node, free_from) in self.quorum.all().iter().zip(self.nodes_of(Slot::FIRST)) {
            match free_from.filter(|_| !self.marked.contains(node)) {
                Some(free_from) if free_from > now => closed += 1,
                Some(_) => open += 1,
                None => {}
            }
        }
        if closed > self.quorum.tolerated_failures() {
            Some(true)
        } else {
            (open >= self.quorum.votes()).then_some(false)
        }
    }

    /// Returns whether no answer that is still to come can change what the last probe has shown.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        self.asked.is_empty() || self.is_taken(now) || !self.free_slots(now).is_empty()
    }

    /// Returns whether something is known of a quorum of nodes.
    pub(super) fn has_quorum(&self) -> bool {
        let known = self.nodes_of(Slot::FIRST).iter().flatten();
        known.count() >= self.quorum.votes()
    }

    fn span(&self, slot: Slot) -> Span {
        self.spans.get(slot.index()).copied().unwrap_or_default()
    }

    /// Returns from when on the slot is free on each node.
    fn nodes_of(&self, slot: Slot) -> &[Option<Timestamp>] {
        let nodes = self.quorum.nodes();
        let of_slot = self.free_from.chunks_exact(nodes).nth(slot.index());
        of_slot.unwrap_or_default()
    }

    /// Returns all slots, whether they may be asked for or not.
    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let count = self.free_from.len() / self.quorum.nodes();
        (0..count).filter_map(Slot::new)
    }

    fn index(&self, node: NodeId, slot: Slot) -> usize {
        if node.index() < self.quorum.nodes() {
            slot.index() * self.quorum.nodes() + node.index()
        } else {
            // Not a member.
            self.free_from.len()
        }
    }

    fn set(&mut self, node: NodeId, slot: Slot, free_from: Option<Timestamp>) {
        let index = self.index(node, slot);
        if let Some(known) = self.free_from.get_mut(index) {
            *known = free_from;
            let nodes = self.nodes_of(slot);
            let known = nodes.iter().flatten().count();
            let others = known.saturating_sub(self.quorum.tolerated_failures());
            let span = Span {
                free_at: passed_by(nodes, self.quorum.votes()).filter(|at| *at < Timestamp::MAX),
                taken_until: (others > 0).then(|| passed_by(nodes, others)).flatten(),
            };
            self.spans[slot.index()] = span;
        }
    }
}

/// Returns by when so many of these times have passed, or `None` if there are fewer.
fn passed_by(times: &[Option<Timestamp>], count: usize) -> Option<Timestamp> {
    let known = times.iter().flatten();
    let by = |at: &Timestamp| known.clone().filter(|it| *it <= at).count();
    known.clone().filter(|at| by(at) >= count).min().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said::node;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn taken(until: u64) -> Reply {
        Reply::Taken { until: at(until) }
    }

    /// A watch of five nodes that has heard these replies, of node 0 and so on.
    fn key_watch(replies: &[Reply]) -> KeyWatch {
        let quorum = Quorum::majority(5).unwrap();
        let mut key_watch = KeyWatch::new(RoundId(1), quorum, 1, SlotSet::OF_A_LOCK);
        for (index, reply) in replies.iter().enumerate() {
            key_watch.handle_reply(node(index), *reply);
        }
        key_watch
    }

    #[test]
    fn a_key_is_free_when_a_quorum_is() {
        assert_eq!(key_watch(&[Reply::Free; 2]).free_at(), None);
        assert_eq!(key_watch(&[Reply::Free; 3]).free_at(), Some(at(0)));
        let replies = [taken(7), Reply::Free, taken(9), Reply::Unknown, taken(8)];
        let mut key_watch = key_watch(&replies);
        assert_eq!(key_watch.free_at(), Some(at(8)));
        assert!(key_watch.is_taken(at(6)) && !key_watch.is_taken(at(7)));
        key_watch.handle_freed(node(2), Slot::FIRST);
        assert_eq!(key_watch.free_at(), Some(at(7)));
        key_watch.handle_freed(node(63), Slot::FIRST);
        assert_eq!(key_watch.free_at(), Some(at(7)), "not a member");
    }

    #[test]
    fn a_notification_before_an_answer_puts_the_answer_in_doubt() {
        let mut key_watch = key_watch(&[Reply::Free, Reply::Free]);
        for _ in 0..300 {
            key_watch.handle_freed(node(2), Slot::FIRST);
            let change = key_watch.handle_change(node(2));
            assert_eq!(change, None, "one probe at a time");
        }
        assert_eq!(key_watch.free_at(), None);
        let again = key_watch.handle_reply(node(2), taken(9));
        assert_eq!(again, Some(SlotSet::OF_A_LOCK), "is it older?");
        assert_eq!(key_watch.free_at(), None);
        assert_eq!(key_watch.handle_reply(node(2), taken(9)), None);
        assert_eq!(key_watch.free_at(), Some(at(9)));
        let repeated = key_watch.handle_reply(node(2), Reply::Free);
        assert_eq!(repeated, None);
        assert_eq!(key_watch.free_at(), Some(at(9)));
        assert!(key_watch.handle_change(node(2)).is_some());
        assert_eq!(key_watch.handle_reply(node(2), Reply::Unknown), None);
        assert_eq!(key_watch.free_at(), Some(at(9)), "what was known stands");
    }
}
