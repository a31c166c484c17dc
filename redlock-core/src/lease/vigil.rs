//! Waiting for a key that somebody else holds: on which nodes it is free, and when it will be.

use alloc::{vec, vec::Vec};

use super::RoundId;
use crate::{NodeId, NodeSet, Quorum, Reply, Timestamp};

/// How often one that has just begun to wait looks again at a key that is free.
const MOST_CHECKS: u32 = 3;

/// What nodes have said of the key since the last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Vigil {
    pub(super) id: RoundId,
    quorum: Quorum,
    /// By node: from when on the key is free there, as far as is known.
    free_from: Vec<Option<Timestamp>>,
    /// The nodes that have not answered the last look yet.
    asked: NodeSet,
    /// Of these, the nodes of which something has been heard meanwhile: nobody knows whether the answer
    /// was given before or after.
    doubtful: NodeSet,
    /// How often to look again before trying, once a quorum is free.
    checks: u32,
    /// Something was heard since the last look by the clock.
    is_told: bool,
    /// There was a look by the clock.
    is_by_the_clock: bool,
    /// A quorum was free, and it is being looked at again.
    was_open: bool,
}

impl Vigil {
    pub(super) fn new(id: RoundId, quorum: Quorum, missed: u32, random: u64) -> Self {
        Self {
            id,
            quorum,
            free_from: vec![None; quorum.nodes()],
            asked: quorum.all(),
            doubtful: NodeSet::EMPTY,
            checks: Self::checks_after(missed, random),
            is_told: false,
            is_by_the_clock: false,
            was_open: false,
        }
    }

    /// Creates a vigil of one that lets others go first: it takes for granted that they have the key until
    /// then, and looks more often than any of them before it tries.
    pub(super) fn yielding(id: RoundId, quorum: Quorum, until: Timestamp) -> Self {
        Self {
            free_from: vec![Some(until); quorum.nodes()],
            asked: NodeSet::EMPTY,
            checks: MOST_CHECKS + 1,
            ..Self::new(id, quorum, 0, 0)
        }
    }

    /// Takes the answer to the last look. Returns whether the node is to be looked at again.
    pub(super) fn handle_reply(&mut self, node: NodeId, reply: Reply) -> bool {
        let mut only = NodeSet::EMPTY;
        only.insert(node);
        let was_asked = self.asked.contains(node);
        let is_doubtful = self.doubtful.contains(node);
        self.asked = self.asked.difference(only);
        self.doubtful = self.doubtful.difference(only);
        let free_from = match reply {
            _ if !was_asked => return false,
            Reply::Free => Timestamp::ZERO,
            Reply::Taken { until } => until,
            // It will be asked again in time.
            _ => return false,
        };
        if is_doubtful {
            self.asked.insert(node);
            return true;
        }
        self.set(node, free_from);
        false
    }

    /// Notes that the key is gone from a node. Returns whether the node is to be looked at: if the key was
    /// gone already, the news is that somebody has set it.
    pub(super) fn handle_freed(&mut self, node: NodeId) -> bool {
        let was_free = self.free_from.get(node.index()) == Some(&Some(Timestamp::ZERO));
        if was_free || self.asked.contains(node) {
            return self.handle_change(node);
        }
        self.is_told = true;
        self.set(node, Timestamp::ZERO);
        false
    }

    /// Notes that something has changed on a node. Returns whether it is to be looked at again now, and
    /// not after its answer to the last look.
    pub(super) fn handle_change(&mut self, node: NodeId) -> bool {
        self.is_told = true;
        if self.asked.contains(node) {
            self.doubtful.insert(node);
            false
        } else {
            self.asked.insert(node)
        }
    }

    /// Takes one of the looks that are to be made once a quorum is free. Returns whether there was one.
    ///
    /// There is none where a look found by itself that the key is free: nobody was told of it at the same
    /// moment, and before another look it would be taken by one who was.
    pub(super) fn take_check(&mut self) -> bool {
        self.was_open = true;
        let was_found = self.is_by_the_clock
            && !self.is_told
            && self.free_from.contains(&Some(Timestamp::ZERO));
        let is_left = self.checks > 0 && !was_found;
        self.checks = self.checks.saturating_sub(1);
        is_left
    }

    /// Awaits what nodes say now: that a quorum was free is not enough.
    pub(super) fn check(&mut self, id: RoundId) {
        self.probe_again(id);
        self.free_from.fill(None);
    }

    /// Returns whether somebody else was faster, once.
    pub(super) fn has_closed(&mut self, now: Timestamp) -> bool {
        self.was_open && self.is_shut(now) && core::mem::take(&mut self.was_open)
    }

    /// Notes how often somebody else was faster by now.
    pub(super) fn handle_missed(&mut self, missed: u32, random: u64) {
        self.checks = Self::checks_after(missed, random);
    }

    /// Returns whether something was heard since the last look by the clock.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Awaits the answers to another look, by the clock.
    pub(super) fn probe_by_the_clock(&mut self, id: RoundId) {
        self.is_told = false;
        self.is_by_the_clock = true;
        self.probe_again(id);
    }

    /// Awaits the answers to another look. What was known stands until they come.
    fn probe_again(&mut self, id: RoundId) {
        self.id = id;
        self.asked = self.quorum.all();
        self.doubtful = NodeSet::EMPTY;
    }

    /// Returns from when on a quorum of nodes is free, as far as is known: later if nobody releases
    /// anything, never if too little is known.
    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        let mut known: Vec<Timestamp> = self.free_from.iter().copied().flatten().collect();
        let votes = self.quorum.votes();
        if known.len() < votes {
            return None;
        }
        known.sort_unstable();
        Some(known[votes - 1])
    }

    /// Returns whether so many nodes have the key now that no quorum can be had, whatever the others
    /// would say.
    pub(super) fn is_shut(&self, now: Timestamp) -> bool {
        let taken = self.free_from.iter().flatten().filter(|&&it| it > now);
        taken.count() > self.quorum.tolerated_failures()
    }

    /// Returns how often to look again at a key that is free before trying, for a waiter that has
    /// `missed` it so many times: each look is a round trip in which others may be faster, and the longer
    /// it has waited, the fewer there are. Servers tell their clients always in the same order, and the
    /// first would else have the lock again and again. A waiter that has missed it very often is one of
    /// many, and they must not all try at the same moment.
    fn checks_after(missed: u32, random: u64) -> u32 {
        let choices = match missed {
            0 | 1 => return MOST_CHECKS - missed,
            2..8 => return 0,
            8.. => missed.ilog2() - 1,
        };
        ((u128::from(random) * u128::from(choices)) >> 64) as u32
    }

    fn set(&mut self, node: NodeId, free_from: Timestamp) {
        if let Some(known) = self.free_from.get_mut(node.index()) {
            *known = Some(free_from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn vigil(replies: &[Reply]) -> Vigil {
        let mut vigil = Vigil::new(RoundId(1), Quorum::majority(5).unwrap(), 4, 0);
        for (index, reply) in replies.iter().enumerate() {
            vigil.handle_reply(NodeId::new(index).unwrap(), *reply);
        }
        vigil
    }

    #[test]
    fn opens_when_a_quorum_is_free() {
        let taken = |until| Reply::Taken { until: at(until) };
        assert_eq!(vigil(&[Reply::Free; 2]).opens_at(), None);
        assert_eq!(vigil(&[Reply::Free; 3]).opens_at(), Some(at(0)));
        let replies = [taken(7), Reply::Free, taken(9), Reply::Unknown, taken(8)];
        let mut vigil = vigil(&replies);
        assert_eq!(vigil.opens_at(), Some(at(8)));
        assert!(vigil.is_shut(at(6)) && !vigil.is_shut(at(7)));
        let node = |index| NodeId::new(index).unwrap();
        vigil.handle_freed(node(2));
        assert_eq!(vigil.opens_at(), Some(at(7)));
        vigil.handle_freed(node(63));
        assert_eq!(vigil.opens_at(), Some(at(7)), "not a member");
    }

    #[test]
    fn what_is_heard_before_an_answer_puts_it_in_doubt() {
        let taken = |until| Reply::Taken { until: at(until) };
        let node = |index| NodeId::new(index).unwrap();
        let mut vigil = vigil(&[Reply::Free, Reply::Free]);
        for _ in 0..300 {
            vigil.handle_freed(node(2));
            assert!(!vigil.handle_change(node(2)), "one look at a time");
        }
        assert_eq!(vigil.opens_at(), None);
        assert!(vigil.handle_reply(node(2), taken(9)), "is it from before?");
        assert_eq!(vigil.opens_at(), None);
        assert!(!vigil.handle_reply(node(2), taken(9)));
        assert_eq!(vigil.opens_at(), Some(at(9)));
        assert!(!vigil.handle_reply(node(2), Reply::Free), "repeated");
        assert_eq!(vigil.opens_at(), Some(at(9)));
        assert!(vigil.handle_change(node(2)));
        assert!(!vigil.handle_reply(node(2), Reply::Unknown));
        assert_eq!(vigil.opens_at(), Some(at(9)), "what was known stands");
    }

    #[test]
    fn the_longer_a_waiter_has_waited_the_sooner_it_tries() {
        let range = |missed| {
            let checks = |random| Vigil::checks_after(missed, random);
            [checks(0), checks(u64::MAX)]
        };
        assert_eq!([0, 1, 2].map(range), [[3, 3], [2, 2], [0, 0]]);
        assert_eq!([3, 5, 7].map(range), [[0, 0]; 3]);
        assert_eq!(
            [8, 15, 16, u32::MAX].map(range),
            [[0, 1], [0, 1], [0, 2], [0, 29]]
        );
    }
}
