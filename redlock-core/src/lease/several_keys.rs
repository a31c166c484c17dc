//! The requests of a lease of several keys while it [gathers](super::gathering) them.

use super::{Lease, State, acquiring::Acquiring, gathering::Gathering};
use crate::{NodeId, NodeSet, Timestamp};

impl Lease {
    /// Takes the answer of a node on which another client has some key.
    pub(super) fn handle_lack(&mut self, now: Timestamp, node: NodeId) {
        let again_at = self.config.retry.draw_delay(now, self.jitter_of_round());
        if let Some(gathering) = self.gathering_mut()
            && gathering.handle_denial(node, again_at)
        {
            self.ask_to_gather(node.into());
        }
    }

    /// Asks a node again on which a key may be free now.
    pub(super) fn gather_after_change(&mut self, node: NodeId) {
        if let Some(gathering) = self.gathering_mut()
            && gathering.handle_change(node)
        {
            self.ask_to_gather(node.into());
        }
    }

    /// Asks the nodes again that lack a key, although no notification came.
    pub(super) fn gather_again(&mut self) {
        if let Some(gathering) = self.gathering_mut() {
            let lacking = gathering.take_lacking();
            self.ask_to_gather(lacking);
        }
    }

    /// Asks the nodes whose turn it is now.
    pub(super) fn gather_further(&mut self) {
        if let State::Acquiring(acquiring) = &mut self.state
            && let Acquiring {
                round,
                gathering: Some(gathering),
                ..
            } = &mut **acquiring
        {
            let next = gathering.take_next(round.tally());
            self.ask_to_gather(next);
        }
    }

    fn gathering_mut(&mut self) -> Option<&mut Gathering> {
        match &mut self.state {
            State::Acquiring(it) => it.gathering.as_mut(),
            _ => None,
        }
    }

    /// Asks nodes to set the keys that are free, and to report when one of the keys changes after that, if they can.
    fn ask_to_gather(&mut self, nodes: NodeSet) {
        if let State::Acquiring(acquiring) = &self.state
            && let Some(gathering) = &acquiring.gathering
            && !nodes.is_empty()
        {
            let operation = gathering.operation;
            self.outbox.ask_in(acquiring.id, nodes, operation);
            if self.is_notified {
                self.outbox.probe(nodes, operation.token());
            }
        }
    }
}
