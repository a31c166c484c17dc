//! What goes wrong with machines and links, and how often.

use crate::{
    clock::{MILLI, SECOND},
    events::{ClientEvent, Event, Fault},
    seen::Seen,
    world::{MAX_PAUSE, World},
};

impl Fault {
    /// The mean time between two of a kind, at severity 1, in the whole system.
    fn mean(self) -> u64 {
        match self {
            Self::MasterCrash | Self::ClientCrash => 60 * SECOND,
            Self::FleetRestart => 900 * SECOND,
            Self::Cut | Self::Pause => 20 * SECOND,
            Self::Promotion | Self::Failover => 30 * SECOND,
            Self::Authority => 15 * SECOND,
            Self::ClockStep | Self::Flush => 120 * SECOND,
        }
    }
}

impl World {
    pub(crate) fn schedule_faults(&mut self) {
        let usual = [
            Fault::MasterCrash,
            Fault::FleetRestart,
            Fault::Cut,
            Fault::Pause,
            Fault::ClientCrash,
        ];
        for fault in usual {
            self.schedule_fault(fault);
        }
        if self.configuration.promotions {
            self.schedule_fault(Fault::Promotion);
        }
        if self.configuration.authorities {
            self.schedule_fault(Fault::Failover);
            self.schedule_fault(Fault::Authority);
        }
        if self.configuration.clock_steps {
            self.schedule_fault(Fault::ClockStep);
        }
        if self.configuration.flushes {
            self.schedule_fault(Fault::Flush);
        }
    }

    fn schedule_fault(&mut self, fault: Fault) {
        let mean = fault.mean() / u64::from(self.configuration.severity);
        let at = self.at + self.rng.around(mean) + MILLI;
        self.schedule(at, Event::Fault(fault));
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.calm {
            return;
        }
        self.trace.event([self.at, 30, fault as u64, 0]);
        self.trace.tell(self.at, || format!("{fault:?}"));
        match fault {
            Fault::MasterCrash => {
                let master = self.rng.index(self.masters.len());
                let outage = self.rng.around(self.max_ttl() / 2);
                self.crash_master(master, outage);
            }
            Fault::FleetRestart => self.restart_fleet(),
            Fault::Cut => self.cut(),
            Fault::Pause => {
                let client = self.busy_client();
                self.pause(client);
            }
            Fault::ClientCrash => {
                let client = self.busy_client();
                let outage = self.rng.around(self.max_ttl() / 2) + MILLI;
                self.crash_client(client, outage);
            }
            Fault::Promotion => self.promote_some(),
            Fault::Failover => self.fail_over(),
            Fault::Authority => self.disturb_authority(),
            Fault::ClockStep => self.step_clocks(),
            Fault::Flush => self.flush(),
        }
        self.schedule_fault(fault);
    }

    fn crash_master(&mut self, master: usize, outage: u64) {
        if !self.masters[master].up {
            return;
        }
        self.note(Seen::MasterCrash);
        let (at, clients) = (self.at, &self.clients);
        let held = self.masters[master].live(at).any(|(_, entry)| {
            let mut clients = clients.iter();
            clients.any(|client| client.believes_in(at, entry.lease))
        });
        if held {
            self.note(Seen::RestartWhileHeld);
        }
        self.masters[master].crash();
        // A killed process closes its connections; a machine that is gone closes nothing.
        if self.rng.chance(700_000) {
            self.close_connections(master);
        }
        self.schedule(at + outage, Event::Restart { master });
    }

    pub(crate) fn close_connections(&mut self, server: usize) {
        let master = server % self.nodes();
        for client in 0..self.clients.len() {
            let delay = self.rng.below(MILLI);
            let lane = self.lane(client, master);
            if lane.server != server {
                continue;
            }
            let epoch = lane.epoch;
            let event = ClientEvent::Broken { master, epoch };
            self.schedule_client(self.at + delay, client, event);
        }
    }

    /// Promotes the replica of one master, or those of all, as where a zone is lost.
    fn promote_some(&mut self) {
        if self.rng.chance(500_000) {
            for master in 0..self.masters.len() {
                self.promote(master);
            }
            self.bring_newcomers();
        } else {
            let master = self.rng.index(self.masters.len());
            self.promote(master);
        }
    }

    /// Lets clients that are idle come back at once as new ones, which have seen no master before.
    fn bring_newcomers(&mut self) {
        for client in 0..self.clients.len() {
            if self.clients[client].active.is_none() && self.rng.chance(300_000) {
                self.crash_client(client, SECOND / 10);
                let begin = ClientEvent::Begin { key: None };
                self.schedule_client(self.at + SECOND / 2, client, begin);
            }
        }
    }

    /// Lets a replica that lacks some of the keys take the place of a master. Connections do not go on.
    fn promote(&mut self, master: usize) {
        if !self.masters[master].up {
            return;
        }
        self.note(Seen::Promotion);
        for client in 0..self.clients.len() {
            self.have_inspected(client, master);
        }
        let lacks: Vec<_> = (0..self.scale.keys)
            .map(|_| self.rng.chance(700_000))
            .collect();
        self.masters[master].promote(|key| lacks[key]);
        self.close_connections(master);
    }

    pub(crate) fn restart(&mut self, master: usize) {
        let at = self.at;
        self.trace.event([at, 31, master as u64, 0]);
        let keep_counters = self.configuration.durable_counters;
        self.masters[master].restart(at, keep_counters);
        // A restart is within the assumptions as long as it is quarantined.
        if !self.configuration.is_quarantine_kept() {
            self.masters[master].forgot_keys_at = Some(at);
        }
    }

    fn restart_fleet(&mut self) {
        self.note(Seen::FleetRestart);
        let rolling = self.rng.chance(500_000);
        for master in 0..self.masters.len() {
            let outage = if rolling {
                self.rng.around(4 * self.max_ttl())
            } else {
                self.rng.around(SECOND / 4)
            };
            self.crash_master(master, outage);
        }
    }

    /// Cuts off one master, one client, or some pairs of both, in one direction or in both.
    fn cut(&mut self) {
        self.note(Seen::Cut);
        let until = self.at + self.rng.around(self.max_ttl() / 2);
        let (mute, deaf) = self.rng.pick(&[(true, true), (true, false), (false, true)]);
        let shape = self.rng.below(3);
        let master = self.rng.index(self.nodes());
        let client = self.busy_client();
        for c in 0..self.clients.len() {
            for m in 0..self.nodes() {
                let hit = match shape {
                    0 => m == master,
                    1 => c == client && self.rng.chance(700_000),
                    _ => self.rng.chance(200_000),
                };
                if hit {
                    let lane = self.lane(c, m);
                    if mute {
                        lane.mute_until = lane.mute_until.max(until);
                    }
                    if deaf {
                        lane.deaf_until = lane.deaf_until.max(until);
                    }
                }
            }
        }
    }

    /// Stops a client for a while, often for longer than its lease lasts.
    pub(crate) fn pause(&mut self, client: usize) {
        let at = self.at;
        let it = &mut self.clients[client];
        if !it.up || it.paused_at.is_some() {
            return;
        }
        it.paused_at = Some(at);
        let life = it.life;
        self.note(Seen::Pause);
        let length = self.rng.around(self.max_ttl()).min(MAX_PAUSE);
        self.schedule(at + length, Event::Resume { client, life });
    }

    /// Ends a client's process: it forgets its lease, its connections, and what it owes.
    fn crash_client(&mut self, client: usize, outage: u64) {
        let at = self.at;
        let it = &mut self.clients[client];
        if !it.up {
            return;
        }
        if let Some(lease) = it.crash() {
            self.history.end(at, lease);
        }
        self.note(Seen::ClientCrash);
        for master in 0..self.nodes() {
            let electorate = self.scale.electorate.clone();
            self.lane(client, master).crash(electorate);
        }
        self.schedule(at + outage, Event::Reboot { client });
    }

    pub(crate) fn reboot(&mut self, client: usize) {
        self.trace.event([self.at, 32, client as u64, 0]);
        self.clients[client].up = true;
        for master in 0..self.nodes() {
            self.schedule_client(self.at, client, ClientEvent::Connect { master });
            if self.configuration.authorities {
                self.schedule_client(self.at, client, ClientEvent::Poll { node: master });
            }
        }
        self.think(client);
    }

    fn step_clocks(&mut self) {
        self.note(Seen::ClockStep);
        let share = self.rng.pick(&[100_000, 500_000, 1_000_000]);
        let by = self.rng.around(2 * self.max_ttl()) as i64;
        for master in 0..self.masters.len() {
            if self.rng.chance(share) {
                self.masters[master].clock.step(by);
                self.masters[master].forgot_keys_at = Some(self.at);
            }
        }
    }

    fn flush(&mut self) {
        self.note(Seen::Flush);
        let share = self.rng.pick(&[100_000, 500_000, 1_000_000]);
        for master in 0..self.masters.len() {
            if self.rng.chance(share) {
                self.masters[master].flush(self.at);
            }
        }
    }

    /// Picks a client, rather one that is busy with a lease.
    fn busy_client(&mut self) -> usize {
        let first = self.rng.index(self.clients.len());
        let order = (first..self.clients.len()).chain(0..first);
        let mut busy = order.filter(|&client| self.clients[client].active.is_some());
        busy.next().unwrap_or(first)
    }
}
