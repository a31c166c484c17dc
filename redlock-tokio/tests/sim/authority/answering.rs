//! What a server answers because of its authority.

use std::time::Duration;

use super::{machine::Mark, rule::Rule};
use crate::{
    clock::HOUR,
    message::{Request, Response},
    network::Network,
    seen::Seen,
};

impl Network {
    /// Answers what depends on the authority of a server. `None` if the server answers as any other.
    pub(crate) fn respond_as_named(
        &mut self,
        at: u64,
        server: usize,
        request: &Request,
    ) -> Option<Response> {
        let state = self.authorities.state()?;
        let now = self.servers[server].millis(at);
        let seat = state.layout.seat_of(server);
        let index = state.layout.machine_of(server);
        let rule = state.owners.without;
        let machine = &mut state.machines[index];
        let process = machine.starts;
        match request {
            Request::Describe => {
                let described = self.servers[server].describe(at);
                // The history would show the promotion, too, whatever the ages say.
                let ignores_history =
                    matches!(rule, Some(Rule::Histories | Rule::Ages | Rule::Markers));
                Some(Response::Described(machine.describe(
                    described,
                    state.owners.kind,
                    index,
                    ignores_history,
                )))
            }
            Request::HistoryAge => {
                let promotions = machine.promotions;
                let mark = Mark::History {
                    process,
                    promotions,
                };
                Some(Response::Age(machine.age(now, mark)))
            }
            Request::TenureAge { epoch } => {
                let mark = Mark::Tenure {
                    seat,
                    epoch: *epoch,
                };
                let age = machine.age(now, mark);
                if !age.is_zero() {
                    self.seen.note(Seen::MarkerOfTenure);
                }
                Some(Response::Age(if rule == Some(Rule::Markers) {
                    Duration::from_nanos(HOUR)
                } else {
                    age
                }))
            }
            Request::Execute(commands) => {
                let Some(error) = machine.refusal(seat, state.owners.kind) else {
                    if state.latest[seat].machine != index {
                        self.seen.note(Seen::OldOwnerServes);
                    }
                    return None;
                };
                self.seen.note(Seen::NotTheOwner);
                Some(Response::Executed(vec![Err(error); commands.len()]))
            }
        }
    }
}
