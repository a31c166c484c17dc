use std::sync::Arc;

use redlock_core::{Eligibility, NodeId, Tenure, Withdrawal};
use tokio::time::Instant;

use super::{
    limits::LONGEST_SLEEP,
    status_board::StatusBoard,
    vetting::{Decision, Statement, Vetting},
};
use crate::{
    Clock, NodeError, log,
    node::{AuthorityKind, Server},
    shown_time::ShownTime,
};

/// Tells all leases that votes of a node count for nothing.
pub(crate) type OnWithdrawal = Box<dyn Fn(Withdrawal) + Send>;

/// The worth of the votes of a lane's node.
pub(super) struct VotingRight {
    node: NodeId,
    address: Arc<str>,
    clock: Clock,
    vetting: Arc<Vetting>,
    on_withdrawal: OnWithdrawal,
    status: Arc<StatusBoard>,
    eligibility: Eligibility,
    /// The authority that names the server, so that only the electorate knows what its votes are worth.
    named_by: Option<AuthorityKind>,
    /// Whether the node had no vote when this was last checked.
    has_no_vote: bool,
}

impl VotingRight {
    pub(super) fn new(
        node: NodeId,
        address: Arc<str>,
        clock: Clock,
        vetting: Arc<Vetting>,
        named_by: Option<AuthorityKind>,
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
            named_by,
            has_no_vote: false,
        }
    }

    /// Takes what a node has said on a new connection, and `refusal`, if the node would not do what
    /// every lock needs. `tenure` is the one in which an authority has named the server. Returns an error if the
    /// node has no vote until somebody changes something.
    pub(super) fn handle_connection(
        &mut self,
        statement: &Statement,
        refusal: Option<&NodeError>,
        tenure: Option<&Tenure>,
    ) -> Result<(), NodeError> {
        let now = self.clock.now();
        let named = self.named_by.zip(tenure);
        let decision = self
            .vetting
            .decide_on_connection(self.node, now, statement, refusal, named);
        let unmet = decision.unmet;
        self.apply(decision)?;
        let (now, eligibility) = (self.clock.now(), self.eligibility());
        let remaining = eligibility.remaining(now);
        if !remaining.is_zero() && !eligibility.is_unconfirmed(now) {
            log::warn!(
                node = %self.address,
                remaining = %ShownTime(remaining),
                "the node has no vote yet: its server started, or was promoted, so recently that it may lack a lock"
            );
        }
        let info = match &statement.server {
            Server::Known(info) => Some(info.clone()),
            Server::None | Server::Withheld(_) => None,
        };
        self.status.connected(info, unmet, eligibility);
        Ok(())
    }

    /// Notes that the authority of the node has reported something, which may change what the votes are worth.
    pub(super) fn handle_report(&self) {
        self.status.answering(self.eligibility());
    }

    /// Takes what a node has said while it is connected. Returns an error if the node has no vote
    /// until somebody changes something.
    pub(super) fn handle_inspection(&mut self, statement: &Statement) -> Result<(), NodeError> {
        if statement.server.may_tell_later() {
            return Ok(());
        }
        if let Server::Known(info) = &statement.server {
            // Otherwise this process would look for lines at another node than those that know the name.
            self.status.introduced(info);
        }
        let before = self.eligibility;
        let now = self.clock.now();
        let decision = self
            .vetting
            .decide_on_inspection(self.node, now, statement, self.named_by);
        let is_withdrawn = decision.withdrawal.is_some();
        self.apply(decision)?;
        // Each report of an authority changes the eligibility, too.
        if is_withdrawn || (self.named_by.is_none() && self.eligibility != before) {
            log::warn!(
                node = %self.address,
                remaining = %ShownTime(self.eligibility().remaining(self.clock.now())),
                "the server was promoted or replaced under its connection, and may lack a lock: the node has no \
                 vote, and its last votes are withdrawn"
            );
            self.status.withdrawn(self.eligibility());
        }
        Ok(())
    }

    /// Logs when the node gets its vote, and when its server is no longer confirmed. Returns when to call this again,
    /// if the node will get its vote by itself.
    pub(super) fn log_change(&mut self) -> Option<Instant> {
        let (now, eligibility) = (self.clock.now(), self.eligibility());
        let had_no_vote = std::mem::replace(&mut self.has_no_vote, !eligibility.covers(now));
        let is_unconfirmed = eligibility.is_unconfirmed(now);
        match (had_no_vote, self.has_no_vote) {
            (true, false) => {
                log::info!(node = %self.address, "the node votes from now on");
            }
            (false, true) if is_unconfirmed => log::warn!(
                node = %self.address,
                "the node has no vote until a majority of its sentinels, or of its cluster's nodes, names its server \
                 as the master to this client"
            ),
            _ => {}
        }
        let remaining = eligibility.remaining(now);
        (self.has_no_vote && !is_unconfirmed).then(|| Instant::now() + remaining.min(LONGEST_SLEEP))
    }

    /// Returns what the node's votes are worth in answers that come now.
    pub(super) fn eligibility(&self) -> Eligibility {
        if self.named_by.is_some() {
            return self.vetting.eligibility(self.node);
        }
        self.eligibility
    }

    fn apply(&mut self, decision: Decision) -> Result<(), NodeError> {
        let Decision {
            unmet: _,
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
