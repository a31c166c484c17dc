//! One request to every node, a tally, one verdict.
//!
//! A verdict comes as soon as it is certain, before the slowest node has answered: when a quorum is
//! reached, or when the nodes that are left cannot make one any more.

mod acquire;
mod extend;
mod release;

pub use acquire::AcquireFailure;
pub(crate) use acquire::{Acquire, AcquireVerdict};
pub(crate) use extend::{Extend, ExtendVerdict};
pub(crate) use release::Release;
pub use release::ReleaseVerdict;

use crate::{Eligibility, NodeId, Quorum, Reply, Timestamp, tally::Tally};

/// The request of a round, and the rule of its verdict.
pub(crate) trait Rules {
    type Verdict: Copy;

    /// Notes a reply that was counted.
    fn note_reply(&mut self, _reply: Reply) {}

    /// Notes what the votes of a node are worth that was put in quarantine, in a round that started at `start`.
    fn note_quarantine(&mut self, _start: Timestamp, _eligibility: Eligibility) {}

    /// Returns the verdict at `now` if the tally makes it certain.
    fn judge(&self, tally: &Tally, now: Timestamp) -> Option<Self::Verdict>;
}

/// A round: its rules, the replies so far, and the verdict, which is given once.
///
/// A repeated reply changes nothing, and neither does a reply from a node that does not belong to the round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round<R: Rules> {
    rules: R,
    tally: Tally,
    verdict: Option<R::Verdict>,
}

impl<R: Rules> Round<R> {
    /// Starts a round at `start`, which must be read *before* the first request leaves.
    const fn with_rules(rules: R, quorum: Quorum, start: Timestamp) -> Self {
        Self {
            rules,
            tally: Tally::new(quorum, start),
            verdict: None,
        }
    }

    /// Counts a node's reply, by what the node's votes are worth. Returns the verdict with the reply that makes
    /// it certain.
    pub(crate) fn handle_reply(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) -> Option<R::Verdict> {
        if !self.tally.record(now, node, reply, eligibility) {
            return None;
        }
        self.rules.note_reply(reply);
        self.judge(now, node, eligibility)
    }

    /// Takes back a node's vote in this round, if it gave one. Returns the verdict if that makes it certain.
    pub(crate) fn withdraw(
        &mut self,
        now: Timestamp,
        node: NodeId,
        eligibility: Eligibility,
    ) -> Option<R::Verdict> {
        if !self.tally.withdraw(node) {
            return None;
        }
        self.judge(now, node, eligibility)
    }

    /// Returns the replies so far.
    pub(crate) const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Ends the round. Its tally counts replies that come later.
    pub(crate) fn into_tally(self) -> Tally {
        self.tally
    }

    /// Returns the verdict if there was none before, and the change at this node makes it certain.
    fn judge(
        &mut self,
        now: Timestamp,
        node: NodeId,
        eligibility: Eligibility,
    ) -> Option<R::Verdict> {
        if self.tally.quarantined.contains(node) {
            self.rules.note_quarantine(self.tally.start, eligibility);
        }
        if self.verdict.is_some() {
            return None;
        }
        self.verdict = self.rules.judge(&self.tally, now);
        self.verdict
    }

    /// Ends the round without waiting for the nodes that have not replied. Returns the verdict unless there was
    /// one before.
    fn end_with(&mut self, verdict: R::Verdict) -> Option<R::Verdict> {
        let had_none = self.verdict.is_none();
        had_none.then(|| *self.verdict.insert(verdict))
    }
}
