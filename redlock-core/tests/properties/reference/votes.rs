//! What the replies to a request come to, counted again from the whole log each time.

use std::collections::BTreeMap;

use redlock_core::{FencingToken, NodeId, NodeSet, Reply, Timestamp};

use super::Story;
use crate::{drive::Input, said::Said};

/// The replies to one request, counted.
#[derive(Default)]
pub(super) struct Votes {
    pub(super) all: usize,
    pub(super) replied: usize,
    pub(super) granted: usize,
    pub(super) quarantined: usize,
    pub(super) outbid: usize,
    pub(super) denied: usize,
    pub(super) failed: usize,
    pub(super) until: Option<Timestamp>,
    pub(super) counter: Option<FencingToken>,
}

impl Votes {
    pub(super) fn majority(&self, yes: usize) -> bool {
        2 * yes > self.all
    }

    /// Whether all nodes but these would not be a majority.
    pub(super) fn hopeless(&self, no: usize) -> bool {
        !self.majority(self.all - no)
    }
}

impl Story<'_> {
    pub(super) fn votes(&self, request: usize, asked: Timestamp) -> Votes {
        let ballots = self.ballots(request);
        let mut votes = Votes {
            all: self.config.quorum.nodes(),
            replied: ballots.len(),
            ..Votes::default()
        };
        for said in ballots.values() {
            votes.counter = votes.counter.max(said.counter());
            if said.is_held_back_at(asked) {
                votes.quarantined += 1;
                let earlier = votes.until.unwrap_or(Timestamp::MAX);
                votes.until = Some(earlier.min(said.votes_from));
                continue;
            }
            match said.reply {
                Reply::Granted => votes.granted += 1,
                Reply::Outbid { .. } => votes.outbid += 1,
                Reply::Denied => votes.denied += 1,
                _ => votes.failed += 1,
            }
        }
        votes
    }

    /// The nodes whose vote counts for a request. Without a fence, a counter that is ahead is a vote.
    pub(super) fn agreed_to(&self, request: usize, asked: Timestamp, unfenced: bool) -> NodeSet {
        self.nodes_that_said(request, |said| {
            let is_ours = said.reply == Reply::Granted || unfenced && said.counter().is_some();
            is_ours && !said.is_held_back_at(asked)
        })
    }

    pub(super) fn denied_by(&self, request: usize) -> NodeSet {
        self.nodes_that_said(request, |said| said.reply == Reply::Denied)
    }

    fn nodes_that_said(&self, request: usize, test: impl Fn(&Said) -> bool) -> NodeSet {
        let ballots = self.ballots(request);
        let nodes = ballots.iter().filter(|(_, said)| test(said));
        nodes.filter_map(|(index, _)| NodeId::new(*index)).collect()
    }

    /// What each node first replied to a request, up to now.
    fn ballots(&self, request: usize) -> BTreeMap<usize, Said> {
        let mut ballots = BTreeMap::new();
        for entry in &self.log[..self.expected.len()] {
            if let Input::Reply { to, node, said } = entry.input
                && to == request
                && node.index() < self.config.quorum.nodes()
            {
                ballots.entry(node.index()).or_insert(said);
            }
        }
        ballots
    }
}
