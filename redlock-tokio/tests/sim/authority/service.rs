//! When locks are served again after a failover.

use super::{outages::Outage, owners::Owners, rule::Kind};
use crate::{clock::MILLI, seen::Seen, world::World};

/// A longer way, on average, makes so many answers late that locks come back at some time only.
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
        let has_slow_network = network.slowest_way() > PROMPT_WAY;
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
        open.has_slow_network |= has_slow_network;
        let Some(named_at) = open.named_at else {
            return;
        };
        // The last votes of the old owner are one window old by then, and their answers under way.
        if at < named_at + 2 * window {
            return;
        }
        if *open.acquired.get_or_insert(acquired) < acquired {
            let outage = Outage {
                length: at - open.since,
                has_slow_network: open.has_slow_network,
                expected: named_at - open.since + max_ttl.as_nanos() as u64 + window,
            };
            state.outages.end(outage);
        }
    }
}
