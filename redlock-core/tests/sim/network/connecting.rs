//! How a client connects to a master, and learns what the master is.

use std::time::Duration;

use redlock_core::{
    Admission, Eligibility, Identity, NodeId, Origin, ServerRole, Sighting, Timestamp,
};

use crate::{
    clock::{MILLI, SECOND},
    configuration::Mutant,
    events::{ClientEvent, Named},
    owner::{NODE, Reign},
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
        let reign = lane.electorate.tenure(NODE()).map(Reign::of);
        if let Some(reign) = reign {
            lane.server = reign.server;
        }
        let server = lane.server;
        let is_unnamed = self.configuration.authorities && reign.is_none();
        if out_of_reach || is_unnamed || !self.masters[server].up {
            return self.reconnect(client, master);
        }
        // `INFO` is answered now; the answer is read a delay later.
        let sighting = self.sighting(client, server);
        let incarnation = self.masters[server].incarnation;
        let named = reign.map(|reign| Named {
            reign,
            marker: self.masters[server].tenure_age(at, reign.epoch),
        });
        let delay = self.delay();
        let event = ClientEvent::Connected {
            master,
            incarnation,
            sighting,
            named,
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
        let identity = self.master_of(sighting);
        let electorate = &mut self.lane(client, master).electorate;
        // Its votes are taken back when it is connected to again.
        let _ = electorate.handle_inspection(now, NODE(), &identity);
    }

    /// Lets a client see a master to which it is connected from the beginning.
    pub(crate) fn meet(&mut self, client: usize, master: usize) {
        let now = self.clients[client].now(self.at);
        let sighting = self.sighting(client, master);
        let identity = self.master_of(sighting);
        let electorate = &mut self.lane(client, master).electorate;
        let admission = electorate.handle_connection(now, NODE(), &identity);
        assert_eq!(admission.withdrawal, None, "it is the first sight");
    }

    pub(crate) fn connected(
        &mut self,
        client: usize,
        master: usize,
        incarnation: u32,
        sighting: Sighting,
        named: Option<Named>,
    ) {
        let now = self.clients[client].now(self.at);
        let lane = self.lane(client, master);
        if lane.connected {
            return;
        }
        let reign = lane.electorate.tenure(NODE()).map(Reign::of);
        if named.map(|it| it.reign) != reign {
            // Another owner was named meanwhile.
            return self.reconnect(client, master);
        }
        lane.connected = true;
        lane.incarnation = incarnation;
        let (epoch, server) = (lane.epoch, lane.server);
        let admission = self.admit(client, master, now, sighting, named);
        let votes_at_once = admission.outcome == Ok(Eligibility::ALWAYS);
        if sighting.history_age.is_some() && votes_at_once && self.configuration.quarantine {
            self.note(Seen::OldMarker);
        }
        if let Some(withdrawal) = admission.withdrawal {
            let node = NodeId::new(master).expect("fewer than 64 masters");
            self.clients[client].withdraw(now, node, withdrawal);
        }
        // The process may have gone while it was connected to. The next inspection shows that.
        if self.masters[server].incarnation != incarnation {
            let broken = ClientEvent::Broken { master, epoch };
            self.schedule_client(self.at + SECOND, client, broken);
        }
        self.deliver_owed(client, master);
    }

    /// Tells a client's electorate what the master says of itself on a new connection.
    fn admit(
        &mut self,
        client: usize,
        master: usize,
        now: Timestamp,
        sighting: Sighting,
        named: Option<Named>,
    ) -> Admission {
        let identity = self.master_of(sighting);
        let electorate = &mut self.lane(client, master).electorate;
        let Some(Named { reign, marker }) = named else {
            return electorate.handle_connection(now, NODE(), &identity);
        };
        let tenure = reign.tenure();
        let admission = electorate.handle_owner_connection(now, NODE(), &tenure, &identity);
        let before = electorate.eligibility(NODE()).starts_at();
        electorate.handle_marker(now, NODE(), &tenure, marker);
        let is_sooner = electorate.eligibility(NODE()).starts_at() < before;
        if is_sooner {
            self.note(Seen::TenureMarker);
        }
        if self.is_replaced(master, reign) {
            self.note(Seen::OldOwner);
        }
        admission
    }

    fn master_of(&self, sighting: Sighting) -> Identity {
        let role = if self.configuration.authorities {
            ServerRole::ClusterMaster
        } else {
            ServerRole::Master
        };
        Identity::Server { role, sighting }
    }
}
