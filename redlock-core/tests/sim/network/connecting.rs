//! How a client connects to a master, and learns what the master is.

use std::time::Duration;

use redlock_core::{Eligibility, NodeId, Origin, Sighting};

use crate::{
    clock::{MILLI, SECOND},
    configuration::Mutant,
    events::ClientEvent,
    seen::Seen,
    world::World,
};

impl World {
    /// Tries to connect, some time from now.
    pub(crate) fn reconnect(&mut self, client: usize, master: usize) {
        let backoff = self.rng.between(10 * MILLI, SECOND);
        let event = ClientEvent::Connect { master };
        self.schedule_client(self.at + backoff, client, event);
    }

    pub(crate) fn connect(&mut self, client: usize, master: usize) {
        let at = self.at;
        let lane = self.lane(client, master);
        let out_of_reach = lane.mute_until.max(lane.deaf_until) > at;
        if lane.connected {
            return;
        }
        if out_of_reach || !self.masters[master].up {
            return self.reconnect(client, master);
        }
        // `INFO` is answered now; the answer is read a delay later.
        let sighting = self.sighting(client, master);
        let incarnation = self.masters[master].incarnation;
        let delay = self.delay();
        let event = ClientEvent::Connected {
            master,
            incarnation,
            sighting,
        };
        self.schedule_client(at + delay, client, event);
    }

    /// What a driver finds out of a master: the truth, unless it is broken.
    fn sighting(&mut self, client: usize, master: usize) -> Sighting {
        let at = self.at;
        let asked_at = self.clients[client].now(at);
        let mutant = self.configuration.mutant;
        let it = &mut self.masters[master];
        let mut replication = it.replication();
        let history_age = match replication.origin {
            Origin::Continues(_) if mutant == Some(Mutant::IgnoresMarkerAge) => Some(Duration::MAX),
            Origin::Continues(_) => Some(it.history_age(at)),
            Origin::Own | Origin::Withheld => None,
        };
        if mutant == Some(Mutant::IgnoresPromotions) {
            replication.origin = Origin::Own;
        }
        Sighting {
            asked_at,
            run_id: Some(it.run_id()),
            uptime: Some(Duration::from_secs(it.uptime(at))),
            replication: Some(replication),
            history_age,
        }
    }

    /// Makes up for the inspections of a master by a client, one in each second, of which only the
    /// last matters: it was some time in the last second.
    pub(crate) fn have_inspected(&mut self, client: usize, master: usize) {
        let ago = self.rng.below(SECOND).min(self.at);
        let incarnation = self.masters[master].incarnation;
        let is_paused = self.clients[client].paused_at.is_some();
        let lane = self.lane(client, master);
        if !lane.is_open() || lane.incarnation != incarnation || is_paused {
            return;
        }
        let asked_at = self.clients[client].now(self.at - ago);
        let sighting = Sighting {
            asked_at,
            ..self.sighting(client, master)
        };
        let now = self.clients[client].now(self.at);
        self.lane(client, master)
            .voter
            .handle_sighting(now, &sighting);
    }

    /// Lets a client see a master to which it is connected from the beginning.
    pub(crate) fn meet(&mut self, client: usize, master: usize) {
        let now = self.clients[client].now(self.at);
        let sighting = self.sighting(client, master);
        let voter = &mut self.lane(client, master).voter;
        let withdrawal = voter.handle_connection(now, &sighting);
        assert_eq!(withdrawal, None, "it is the first sight");
    }

    pub(crate) fn connected(
        &mut self,
        client: usize,
        master: usize,
        incarnation: u32,
        sighting: &Sighting,
    ) {
        let now = self.clients[client].now(self.at);
        if self.lane(client, master).connected {
            return;
        }
        let lane = self.lane(client, master);
        lane.connected = true;
        lane.incarnation = incarnation;
        let epoch = lane.epoch;
        let withdrawal = lane.voter.handle_connection(now, sighting);
        let votes_at_once = lane.voter.eligibility() == Eligibility::ALWAYS;
        if sighting.history_age.is_some() && votes_at_once && self.configuration.quarantine {
            self.note(Seen::OldMarker);
        }
        if let Some(withdrawal) = withdrawal {
            let node = NodeId::new(master).expect("fewer than 64 masters");
            self.clients[client].withdraw(now, node, withdrawal);
        }
        // The process may have gone while it was connected to. The next inspection shows that.
        if self.masters[master].incarnation != incarnation {
            let broken = ClientEvent::Broken { master, epoch };
            self.schedule_client(self.at + SECOND, client, broken);
        }
        self.deliver_owed(client, master);
    }
}
