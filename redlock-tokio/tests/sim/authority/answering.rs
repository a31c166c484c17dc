//! What a server answers because of its authority.

use redlock_tokio::NodeError;

use super::state::Authorities;
use crate::{
    clock::SECOND,
    message::{Reply, Request, Response, refused},
    network::Network,
    seen::Seen,
};

/// How long the other nodes of a cluster take to see that a master is down.
const NODE_TIMEOUT: u64 = SECOND / 4;

impl Network {
    /// Returns the answer of a server that refuses a request because of its authority.
    pub(crate) fn refuse_as_named(
        &mut self,
        at: u64,
        server: usize,
        request: &Request,
    ) -> Option<Reply> {
        let refusal = self.refusal_by_authority(at, server);
        match (request, refusal) {
            (Request::Describe, _) => None,
            (Request::Execute(commands), Some(error)) => {
                Some(Ok(Response::Executed(vec![Err(error); commands.len()])))
            }
            (Request::Execute(_), None) => {
                let Authorities { layout, latest, .. } = self.authorities.as_ref()?;
                let owner = latest[layout.seat_of(server)].machine;
                if owner != layout.machine_of(server) {
                    self.seen.note(Seen::OldOwnerServes);
                }
                None
            }
            (_, refusal) => refusal.map(Err),
        }
    }

    fn refusal_by_authority(&mut self, at: u64, server: usize) -> Option<NodeError> {
        let it = self.authorities.as_ref()?;
        if let Some(error) = self.refusal_of(server) {
            self.seen.note(Seen::NotTheOwner);
            return Some(error);
        }
        // The other masters serve nothing while the slots of one have no master.
        let is_uncovered = it.needs_full_coverage
            && it.masters.iter().any(|master| {
                let server = &self.servers[it.layout.server(0, *master)];
                server.outage.is_some() && server.stopped_at + NODE_TIMEOUT <= at
            });
        is_uncovered.then(|| {
            self.seen.note(Seen::ClusterDown);
            refused("CLUSTERDOWN", "a shard has no master")
        })
    }
}
