//! How long locks cannot be acquired after a failover, where a seat has the only vote and nothing else goes wrong.

use super::{
    council::Reign,
    members::route_to_member,
    owners::{Kind, Owners},
};
use crate::{
    clock::{MILLI, SECOND},
    network::{Network, Route},
    seen::Seen,
    trace::Seconds,
    violation::{self, Violation},
    world::World,
};

/// The time from the promotion of an owner until the next lock.
pub(super) struct Gap {
    since: u64,
    reign: Reign,
    /// When a majority of the members knew the new owner.
    named_at: Option<u64>,
    /// How many locks were acquired, when the old owner had certainly lost its vote.
    acquired: Option<u64>,
}

/// How much longer than the rules cost an outage may be, until the next users come and the next attempts are made.
const LONGEST_EXCESS: u64 = 5 * SECOND;

/// A longer way to the owner, on average, makes so many answers late that locks come back at some time only.
const PROMPT_WAY: u64 = 5 * MILLI;

impl Gap {
    /// Notes that an owner was promoted. An outage that has not ended does not count: two failovers add up.
    pub(super) fn new(since: u64, reign: Reign) -> Self {
        Self {
            since,
            reign,
            named_at: None,
            acquired: None,
        }
    }
}

impl World {
    /// Notes when a majority knows a new owner.
    pub(super) fn note_majorities(&mut self) {
        let at = self.at();
        self.with_authority(|it| {
            let majority = it.layout.members() / 2 + 1;
            if let Some(outage) = &mut it.outage
                && outage.named_at.is_none()
                && it.councils[0].supporters(0, outage.reign) >= majority
            {
                outage.named_at = Some(at);
            }
        });
    }

    /// Notes when locks are acquired again after a failover.
    pub(crate) fn note_service(&mut self) {
        if !self.measures_outages() {
            return;
        }
        let window = self.window();
        let mut network = self.network.lock();
        let (at, acquired) = (network.at(), network.seen.get(Seen::Acquired));
        let Some(outage) = network
            .authorities
            .state()
            .and_then(|it| it.outage.as_mut())
        else {
            return;
        };
        // The last votes of the old owner are one window old by then, and their answers under way.
        let has_settled = outage.named_at.is_some_and(|it| it + 2 * window <= at);
        if has_settled && *outage.acquired.get_or_insert(acquired) < acquired {
            network.seen.note(Seen::Outage);
            drop(network);
            self.end_outage();
        }
    }

    /// Ends an outage: locks are acquired again, another failover comes, or the faults end. It must not be too long.
    pub(crate) fn end_outage(&mut self) {
        if !self.measures_outages() {
            return;
        }
        let (max_ttl, window) = (self.max_ttl(), self.window());
        let mut network = self.network.lock();
        let at = network.at();
        let outage = network.authorities.state().and_then(|it| it.outage.take());
        let Some(outage) = outage else { return };
        let Some(named_at) = outage.named_at else {
            return;
        };
        let length = at - outage.since;
        let expected = named_at - outage.since + max_ttl + window;
        if length > expected + LONGEST_EXCESS && network.serves_promptly(outage.reign, window) {
            let (length, expected) = (Seconds(length), Seconds(expected));
            let text = format!("no lock for {length} s after a failover that costs {expected} s");
            let violation = Violation::new(violation::Kind::Service, text);
            self.failures.push(violation);
        }
    }

    fn measures_outages(&self) -> bool {
        let owners = self.configuration.owners;
        owners.is_some_and(|it| it.only_failovers && it.kind == Kind::Sentinels { groups: 1 })
    }

    fn window(&self) -> u64 {
        Owners::window(self.scale.max_ttl).as_nanos() as u64
    }
}

impl Network {
    /// Returns whether a process reaches the owner that was promoted, and a majority of the members, so fast that no
    /// attempt fails for that reason. A longer way to a member makes so many of its answers late that confirmations
    /// end.
    fn serves_promptly(&mut self, reign: Reign, window: u64) -> bool {
        let Some(state) = self.authorities.state() else {
            return false;
        };
        let members = state.layout.members();
        let address = state.layout.server(0, reign.machine);
        let is_short = |route, longest| self.way(route).is_some_and(|it| it <= longest);
        self.processes().into_iter().any(|process| {
            let route = Route { process, address };
            let near = (0..members)
                .filter(|member| is_short(route_to_member(process, 0, *member), window / 10));
            is_short(route, PROMPT_WAY) && near.count() > members / 2
        })
    }
}
