//! What a server answers because of its authority.

use redlock_tokio::NodeError;

use super::machine::Mark;
use crate::{
    clock::SECOND,
    message::{Reply, Request, Response, refused},
    network::Network,
    seen::Seen,
};

/// How long the other nodes of a cluster take to see that a master is down.
const NODE_TIMEOUT: u64 = SECOND / 4;

impl Network {
    /// Answers what depends on the authority of a server. `None` if the server answers as any other.
    pub(crate) fn respond_as_named(
        &mut self,
        at: u64,
        server: usize,
        request: &Request,
    ) -> Option<Reply> {
        self.authorities.state()?;
        let refusal = self.refuse_as_named(at, server);
        match request {
            Request::Describe => Some(Ok(self.describe_as_named(at, server))),
            Request::HistoryAge | Request::TenureAge { .. } => {
                if let Some(error) = refusal {
                    self.seen.note(Seen::MarkerRefused);
                    return Some(Err(error));
                }
                match self.refuse_marker(server) {
                    Some(error) => Some(Err(error)),
                    None => self.read_marker(at, server, request).map(Ok),
                }
            }
            Request::LookUp(_) | Request::Line(_) => refusal.map(Err),
            Request::Execute(commands) => {
                let Some(error) = refusal else {
                    let state = self.authorities.state()?;
                    let seat = state.layout.seat_of(server);
                    if state.latest[seat].machine != state.layout.machine_of(server) {
                        self.seen.note(Seen::OldOwnerServes);
                    }
                    return None;
                };
                Some(Ok(Response::Executed(vec![Err(error); commands.len()])))
            }
        }
    }

    fn describe_as_named(&mut self, at: u64, server: usize) -> Response {
        let described = self.servers[server].describe(at);
        let Some(state) = self.authorities.state() else {
            return Response::Described(described);
        };
        let index = state.layout.machine_of(server);
        let kind = state.owners.kind;
        let machine = &state.machines[index];
        Response::Described(machine.describe(described, kind, index))
    }

    fn read_marker(&mut self, at: u64, server: usize, request: &Request) -> Option<Response> {
        let now = self.servers[server].millis(at);
        let state = self.authorities.state()?;
        let seat = state.layout.seat_of(server);
        let index = state.layout.machine_of(server);
        let machine = &mut state.machines[index];
        match request {
            Request::TenureAge { epoch } => {
                let mark = Mark::Tenure {
                    seat,
                    epoch: *epoch,
                };
                let age = machine.age(now, mark);
                if !age.is_zero() {
                    self.seen.note(Seen::MarkerOfTenure);
                }
                Some(Response::Age(age))
            }
            Request::HistoryAge => {
                let mark = Mark::History {
                    process: machine.starts,
                    promotions: machine.promotions,
                };
                Some(Response::Age(machine.age(now, mark)))
            }
            Request::Describe | Request::Execute(_) | Request::LookUp(_) | Request::Line(_) => None,
        }
    }

    /// Returns why a server refuses all commands for keys, because of its authority.
    fn refuse_as_named(&mut self, at: u64, server: usize) -> Option<NodeError> {
        let state = self.authorities.state()?;
        let seat = state.layout.seat_of(server);
        let machine = &state.machines[state.layout.machine_of(server)];
        if let Some(error) = machine.refusal(seat, state.owners.kind) {
            self.seen.note(Seen::NotTheOwner);
            return Some(error);
        }
        // The other masters serve nothing while the slots of one have no master.
        let is_uncovered = state.needs_full_coverage
            && state.masters.iter().any(|master| {
                let server = &self.servers[state.layout.server(0, *master)];
                server.outage.is_some() && server.stopped_at + NODE_TIMEOUT <= at
            });
        is_uncovered.then(|| {
            self.seen.note(Seen::ClusterDown);
            refused("CLUSTERDOWN", "a shard has no master")
        })
    }
}
