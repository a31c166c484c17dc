use std::sync::Arc;

use redlock_core::{Eligibility, NodeId, Withdrawal};
use tokio::time::Instant;

use super::{
    limits::LONGEST_SLEEP,
    status_board::StatusBoard,
    vetting::{Decision, Statement, Vetting},
};
use crate::{Clock, NodeError, node::Server};

/// Tells all leases that votes of a node count for nothing.
pub(crate) type OnWithdrawal = Box<dyn Fn(Withdrawal) + Send>;

/// What the votes of a lane's node are worth.
pub(super) struct VotingRight {
    node: NodeId,
    /// What logs call the node.
    address: Arc<str>,
    clock: Clock,
    vetting: Arc<Vetting>,
    on_withdrawal: OnWithdrawal,
    status: Arc<StatusBoard>,
    eligibility: Eligibility,
    /// Whether the node had no vote when this was last checked.
    is_quarantined: bool,
}

impl VotingRight {
    pub(super) fn new(
        node: NodeId,
        address: Arc<str>,
        clock: Clock,
        vetting: Arc<Vetting>,
        on_withdrawal: OnWithdrawal,
        status: Arc<StatusBoard>,
    ) -> Self {
        Self {
            node,
            address,
            clock,
            vetting,
            on_withdrawal,
            status,
            eligibility: Eligibility::ALWAYS,
            is_quarantined: false,
        }
    }

    /// Takes what a node has said on a new connection, and `refusal`, if the node would not do what
    /// every lock needs. Returns an error if the node has no vote until somebody changes something.
    pub(super) fn handle_connection(
        &mut self,
        statement: &Statement,
        refusal: Option<&NodeError>,
    ) -> Result<(), NodeError> {
        let now = self.clock.now();
        let decision = self
            .vetting
            .decide_on_connection(self.node, now, statement, refusal);
        self.apply(decision)?;
        let remaining = self.eligibility.remaining(self.clock.now());
        if !remaining.is_zero() {
            tracing::warn!(
                node = %self.address,
                ?remaining,
                "has no vote yet: it started, or was promoted, so recently that it may lack a lock"
            );
        }
        let info = match &statement.server {
            Server::Known(info) => Some(info.clone()),
            Server::None | Server::Withheld(_) => None,
        };
        self.status.connected(info, self.eligibility);
        Ok(())
    }

    /// Takes what a node has said while it is connected. Returns an error if the node has no vote
    /// until somebody changes something.
    pub(super) fn handle_inspection(&mut self, statement: &Statement) -> Result<(), NodeError> {
        if statement.server.may_tell_later() {
            return Ok(());
        }
        let before = self.eligibility;
        let now = self.clock.now();
        let decision = self.vetting.decide_on_inspection(self.node, now, statement);
        self.apply(decision)?;
        if self.eligibility != before {
            tracing::warn!(
                node = %self.address,
                remaining = ?self.eligibility.remaining(self.clock.now()),
                "was promoted or replaced under its connection, and may lack a lock: it has no \
                 vote, and its last votes are withdrawn"
            );
            self.status.answering(self.eligibility);
        }
        Ok(())
    }

    /// Logs the end of a quarantine. Returns when to call this again, if the node is in quarantine.
    pub(super) fn log_end_of_quarantine(&mut self) -> Option<Instant> {
        let remaining = self.eligibility.remaining(self.clock.now());
        let was_quarantined = self.is_quarantined;
        self.is_quarantined = !remaining.is_zero();
        if was_quarantined && !self.is_quarantined {
            tracing::info!(node = %self.address, "votes from now on");
        }
        self.is_quarantined
            .then(|| Instant::now() + remaining.min(LONGEST_SLEEP))
    }

    /// Returns what the node's votes are worth now.
    pub(super) const fn eligibility(&self) -> Eligibility {
        self.eligibility
    }

    fn apply(&mut self, decision: Decision) -> Result<(), NodeError> {
        let Decision {
            outcome,
            withdrawal,
        } = decision;
        // The answers that come from now on must carry the new eligibility before any lease hears of
        // the withdrawal.
        if let Some(withdrawal) = withdrawal {
            self.eligibility = withdrawal.eligibility;
            (self.on_withdrawal)(withdrawal);
        }
        self.eligibility = outcome?;
        Ok(())
    }
}
