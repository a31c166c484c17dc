use crate::{Eligibility, NodeId, Quorum, Reply, Timestamp, tally::Tally};

/// The tally of a round and its verdict, which is given once.
///
/// The round brings the judge: a function that returns the verdict as soon as the tally makes it certain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ballot<V> {
    tally: Tally,
    verdict: Option<V>,
}

impl<V: Copy> Ballot<V> {
    pub(crate) const fn new(quorum: Quorum, start: Timestamp) -> Self {
        Self {
            tally: Tally::new(quorum, start),
            verdict: None,
        }
    }

    /// Counts a reply. Returns the verdict with the reply that makes it certain.
    pub(crate) fn handle_reply(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
        judge: impl FnOnce(&Tally) -> Option<V>,
    ) -> Option<V> {
        let is_counted = self.tally.record(now, node, reply, eligibility);
        self.decide_if(is_counted, judge)
    }

    /// Takes back a node's vote, if it gave one. Returns the verdict if that makes it certain.
    pub(crate) fn withdraw(
        &mut self,
        node: NodeId,
        eligibility: Eligibility,
        judge: impl FnOnce(&Tally) -> Option<V>,
    ) -> Option<V> {
        let is_taken_back = self.tally.withdraw(node, eligibility);
        self.decide_if(is_taken_back, judge)
    }

    /// Ends the round without waiting for the nodes that have not replied. Returns the verdict unless it
    /// was given before.
    pub(crate) fn give_up(&mut self, judge: impl FnOnce(&Tally) -> V) -> Option<V> {
        self.decide_if(true, |tally| Some(judge(tally)))
    }

    pub(crate) const fn tally(&self) -> &Tally {
        &self.tally
    }

    fn decide_if(
        &mut self,
        has_changed: bool,
        judge: impl FnOnce(&Tally) -> Option<V>,
    ) -> Option<V> {
        if !has_changed || self.verdict.is_some() {
            return None;
        }
        self.verdict = judge(&self.tally);
        self.verdict
    }
}
