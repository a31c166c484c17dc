//! An authority that names the owner of a node: members that lag, restart, disagree and are cut off, and
//! failovers that lose keys.

use std::time::Duration;

use crate::{
    clock::{HOUR, MILLI, SECOND},
    events::{ClientEvent, Event},
    owner::{MEMBERS, NODE, Reign, Word},
    seen::Seen,
    world::World,
};

/// How often a client asks each member.
const POLL_INTERVAL: u64 = SECOND;

impl World {
    /// Asks the members of a node's authority, each by itself.
    pub(crate) fn poll(&mut self, client: usize, node: usize) {
        let at = self.at;
        for member in 0..MEMBERS {
            let delay = self.delay();
            let is_cut = self.lane(client, node).members_cut_until[member] > at;
            let it = self.authorities[node].members[member];
            if is_cut || it.down_until > at || (!self.calm && self.rng.chance(20_000)) {
                continue;
            }
            // Before the clock of any other machine began, so the first owner is old.
            let known_for = if it.since == 0 { HOUR } else { at - it.since };
            let word = Word {
                member,
                asked_at: self.clients[client].now(at),
                reign: it.reign,
                age: Duration::from_nanos(known_for),
            };
            let event = ClientEvent::Word { node, word };
            self.schedule_client(at + delay, client, event);
        }
        let again = ClientEvent::Poll { node };
        self.schedule_client(at + POLL_INTERVAL, client, again);
    }

    /// Takes the word of a member.
    pub(crate) fn hear_word(&mut self, client: usize, node: usize, word: Word) {
        let now = self.clients[client].now(self.at);
        let (at, mutant) = (self.at, self.configuration.mutant);
        let lane = self.lane(client, node);
        let answering = lane.members_cut_until.map(|until| until <= at);
        let report = word.report(node, answering, mutant);
        let is_another = lane.electorate.handle_report(now, NODE(), report);
        if is_another {
            let epoch = lane.epoch;
            self.break_up(client, node, epoch);
        }
    }

    /// Makes a replica that lacks keys the owner of a node, by one member. The others turn to it when they
    /// hear of it. The old owner stays what it is until somebody tells it.
    pub(crate) fn fail_over(&mut self) {
        let node = self.rng.index(self.nodes());
        let member = self.rng.index(MEMBERS);
        let nodes = self.nodes();
        let it = &self.authorities[node].members[member];
        let old = it.reign;
        let server = if old.server == node {
            node + nodes
        } else {
            node
        };
        let is_away = it.down_until > self.at || it.lags_until > self.at;
        if is_away || !self.masters[server].is_replica {
            return;
        }
        self.note(Seen::Failover);
        let epoch = old.epoch + 1;
        self.promote_replica(old.server, server);
        let reign = Reign { server, epoch };
        self.turn(node, member, reign);
        for other in (0..MEMBERS).filter(|it| *it != member) {
            let delay = self.rng.around(SECOND);
            let event = Event::Turn {
                node,
                member: other,
                reign,
            };
            self.schedule(self.at + delay, event);
        }
        // The old owner is partitioned from the authority, but from no client.
        let delay = self.rng.around(20 * SECOND);
        let event = Event::Demote {
            node,
            server: old.server,
        };
        self.schedule(self.at + delay, event);
    }

    /// A member hears of an owner.
    pub(crate) fn turn(&mut self, node: usize, member: usize, reign: Reign) {
        let at = self.at;
        let it = &mut self.authorities[node].members[member];
        let later = it.lags_until.max(it.down_until);
        if later > at {
            let event = Event::Turn {
                node,
                member,
                reign,
            };
            return self.schedule(later, event);
        }
        if reign.epoch > it.reign.epoch {
            it.reign = reign;
            it.since = at;
        }
    }

    /// An old owner is told that it is a replica, unless it is the owner again.
    pub(crate) fn demote(&mut self, node: usize, server: usize) {
        let members = self.authorities[node].members.iter();
        let newest = members.map(|it| it.reign).max_by_key(|it| it.epoch);
        if newest.is_some_and(|it| it.server != server) {
            self.close_connections(server);
            self.masters[server].demote();
        }
    }

    /// A member restarts, hears nothing new for a while, or is cut off from the others, but not from all clients.
    pub(crate) fn disturb_authority(&mut self) {
        self.note(Seen::MemberFault);
        let at = self.at;
        let node = self.rng.index(self.nodes());
        let member = self.rng.index(MEMBERS);
        let until = at + self.rng.around(10 * SECOND);
        let kind = self.rng.below(3);
        let it = &mut self.authorities[node].members[member];
        match kind {
            0 => {
                it.down_until = until;
                it.since = until;
            }
            1 => it.lags_until = until,
            _ => {
                it.lags_until = until + 10 * SECOND;
                self.partition(node, member, until + 10 * SECOND);
            }
        }
    }

    /// Cuts a member off from the others, together with some clients.
    fn partition(&mut self, node: usize, member: usize, until: u64) {
        for client in 0..self.clients.len() {
            let is_cut_off = self.rng.chance(400_000);
            let lane = self.lane(client, node);
            for other in (0..MEMBERS).filter(|it| is_cut_off == (*it != member)) {
                lane.members_cut_until[other] = until;
            }
        }
    }

    fn promote_replica(&mut self, old: usize, new: usize) {
        let lacks: Vec<_> = (0..self.scale.keys)
            .map(|_| self.rng.chance(700_000))
            .collect();
        let at = self.at;
        let copies = self.masters[old].replicated(at);
        self.masters[new].take_over(at, copies, |key| lacks[key]);
    }

    /// Whether a member knows a later owner of a node.
    pub(crate) fn is_replaced(&self, node: usize, reign: Reign) -> bool {
        let mut members = self.authorities[node].members.iter();
        members.any(|it| it.reign.epoch > reign.epoch)
    }

    /// Counts what the rule of owners has held back.
    pub(crate) fn note_owner_rule(&mut self, client: usize, node: usize) {
        let now = self.clients[client].now(self.at);
        let eligibility = self.lane(client, node).electorate.eligibility(NODE());
        if eligibility.ends_at() < now {
            self.note(Seen::Lapsed);
        }
        if eligibility.starts_at() > now.saturating_add(Duration::from_nanos(MILLI)) {
            self.note(Seen::Settling);
        }
    }
}
