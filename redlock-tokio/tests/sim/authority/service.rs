//! When locks are served again after a failover.

use super::{members::route_to_member, owners::Owners, rule::Kind};
use crate::{
    clock::MILLI,
    network::{Network, Route},
    seen::Seen,
    world::World,
};

/// A longer way to the owner, on average, makes so many answers late that locks come back at some time only.
const PROMPT_WAY: u64 = 5 * MILLI;

impl World {
    /// Notes when a majority knows a new owner.
    pub(super) fn note_majorities(&mut self) {
        let at = self.at();
        self.with_authority(|it| {
            let majority = it.layout.members() / 2 + 1;
            if let Some(open) = &mut it.outages.open
                && open.named_at.is_none()
                && it.councils[0].supporters(0, open.reign) >= majority
            {
                open.named_at = Some(at);
            }
        });
    }

    /// Notes when locks are acquired again after a failover.
    pub(crate) fn note_service(&mut self) {
        let max_ttl = self.scale.max_ttl;
        let window = Owners::window(max_ttl).as_nanos() as u64;
        let network = &mut *self.network.lock();
        if self.configuration.owners.is_none() {
            return;
        }
        let (at, acquired) = (network.at(), network.seen.get(Seen::Acquired));
        let Some(state) = network.authorities.state() else {
            return;
        };
        let is_only_seat = state.owners.kind == Kind::Sentinels { groups: 1 };
        if !(state.owners.only_failovers && is_only_seat) {
            return;
        }
        let Some(open) = &mut state.outages.open else {
            return;
        };
        open.cost = max_ttl.as_nanos() as u64 + window;
        open.longest_way_to_member = window / 10;
        let Some(named_at) = open.named_at else {
            return;
        };
        // The last votes of the old owner are one window old by then, and their answers under way.
        if at < named_at + 2 * window {
            return;
        }
        if *open.acquired.get_or_insert(acquired) < acquired {
            let is_slow = !network.serves_promptly();
            if let Some(state) = network.authorities.state() {
                state.outages.end(at, is_slow);
            }
        }
    }
}

impl Network {
    /// Drops the outage that has not ended: another failover comes, or the faults end.
    pub(crate) fn cut_off_outage(&mut self) {
        let (at, is_slow) = (self.at(), !self.serves_promptly());
        if let Some(state) = self.authorities.state() {
            state.outages.cut_off(at, is_slow);
        }
    }

    /// Returns whether a process reaches the owner that was promoted, and a majority of the members, so fast that no
    /// attempt fails for that reason.
    fn serves_promptly(&mut self) -> bool {
        let Some(state) = self.authorities.state() else {
            return false;
        };
        let Some(open) = &state.outages.open else {
            return false;
        };
        let (machine, to_member) = (open.reign.machine, open.longest_way_to_member);
        let members = state.layout.members();
        let address = state.layout.server(0, machine);
        let is_short = |route, longest| self.way(route).is_some_and(|it| it <= longest);
        self.processes().into_iter().any(|process| {
            let route = Route { process, address };
            let near = (0..members)
                .filter(|member| is_short(route_to_member(process, 0, *member), to_member));
            is_short(route, PROMPT_WAY) && near.count() > members / 2
        })
    }
}
