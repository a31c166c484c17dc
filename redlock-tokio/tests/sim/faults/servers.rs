//! What goes wrong with servers that restart, stand still, or refuse.

use crate::{
    clock::{MILLI, SECOND},
    configuration::Restarts,
    network::Network,
    seen::Seen,
    server::{Disk, Outage, Refusal, Withheld},
    world::World,
};

impl Network {
    /// Ends the servers of a machine, and starts them again after a while.
    pub(crate) fn stop(&mut self, servers: &[usize], outage: Outage, disk: Disk, length: u64) {
        let at = self.at();
        for &server in servers {
            if self.servers[server].outage.is_some() {
                continue;
            }
            self.servers[server].stop(at, outage, disk);
            // A killed process closes its connections; a machine that is gone closes nothing.
            if outage == Outage::Refuses {
                self.reset_all(server);
            }
            let start = move |network: &mut Self| {
                let (at, is_named) = (network.at(), network.authorities.is_some());
                network.servers[server].start(at, disk, is_named);
            };
            self.queue.push_to_network(at + length, start);
        }
    }
}

impl World {
    pub(super) fn end_some_server(&mut self) {
        let server = self.some_server();
        let length = self.rng.around(self.max_ttl() / 2);
        self.end_server(server, length);
    }

    /// Ends a server. In some worlds it keeps its keys, and in others only sometimes.
    fn end_server(&mut self, server: usize, length: u64) {
        let keeps = match self.configuration.restarts {
            Restarts::Durable => true,
            Restarts::Quarantined | Restarts::Trusted => self.rng.chance(300_000),
        };
        let (disk, seen) = if keeps {
            (Disk::Complete, Seen::ServerEndKeeping)
        } else {
            (Disk::Empty, Seen::ServerEnd)
        };
        self.stop(server, length, disk, seen);
    }

    /// Ends a server that writes to its disk once a second.
    pub(super) fn tear_some_server(&mut self) {
        let server = self.some_server();
        let length = self.rng.around(SECOND / 2);
        let lost = self.rng.u64(..=SECOND);
        self.stop(server, length, Disk::Older(lost), Seen::TornRestart);
    }

    fn stop(&mut self, server: usize, length: u64, disk: Disk, seen: Seen) {
        let outage = self.rng.pick(&[Outage::Refuses, Outage::Silent]);
        let mut network = self.network.lock();
        if network.servers[server].outage.is_some() {
            return;
        }
        network.seen.note(seen);
        let servers = network.servers_with(server);
        let keeps_marker = network.authorities.is_some() && disk != Disk::Empty;
        network.stop(&servers, outage, disk, length);
        drop(network);
        // Keys that expire early for that reason are as good as lost, and the server waits before it votes. A marker
        // of a tenure would tell too much.
        if self.configuration.restarts == Restarts::Quarantined && !keeps_marker {
            self.step_clocks_while_down(&servers);
        }
    }

    /// Lets the clock of a machine that is down step forward, sometimes.
    fn step_clocks_while_down(&mut self, servers: &[usize]) {
        if !self.rng.chance(300_000) {
            return;
        }
        let by = self.rng.around(2 * self.max_ttl());
        let mut network = self.network.lock();
        network.seen.note(Seen::ClockStepWhileDown);
        for &server in servers {
            network.servers[server].step_clock(by);
        }
    }

    /// Sets the clock of a machine back. Its keys live for longer, which no promise forbids.
    pub(super) fn set_clock_back(&mut self) {
        let server = self.some_server();
        let by = self.rng.around(self.max_ttl() / 8);
        let most = self.max_ttl() / 2;
        let mut network = self.network.lock();
        let mut set_back = 0;
        for server in network.servers_with(server) {
            set_back = network.servers[server].set_clock_back(by, most);
        }
        if set_back > 0 {
            network.seen.note(Seen::ClockSetBack);
        }
    }

    /// Restarts all servers, at once or one after the other.
    pub(super) fn restart_fleet(&mut self) {
        let is_rolling = self.rng.bool();
        self.network.lock().seen.note(if is_rolling {
            Seen::RollingFleet
        } else {
            Seen::ColdFleet
        });
        let apart = if is_rolling {
            self.rng.around(2 * self.max_ttl()).min(20 * SECOND)
        } else {
            0
        };
        for address in 0..self.scale.servers {
            let server = self.network.lock().machine(address);
            let length = self.rng.around(SECOND / 4);
            let turn = apart * address as u64;
            self.push(turn, move |world| world.restart(server, length));
        }
    }

    /// Ends a server because its turn in a rolling restart has come.
    pub(crate) fn restart(&mut self, server: usize, length: u64) {
        if !self.is_calm {
            self.end_server(server, length);
        }
    }

    /// Lets a server stand still. Then it carries out what has arrived meanwhile.
    pub(super) fn pause_server(&mut self) {
        let server = self.some_server();
        let length = self.rng.around(self.max_ttl() / 2).min(10 * SECOND);
        let mut network = self.network.lock();
        let until = network.at() + length;
        if network.servers[server].outage.is_none() {
            for server in network.servers_with(server) {
                let it = &mut network.servers[server].stands_still_until;
                *it = until.max(*it);
            }
            network.seen.note(Seen::ServerPause);
        }
    }

    pub(super) fn slow_down_server(&mut self) {
        let server = self.some_server();
        let length = self.rng.around(self.max_ttl() / 2);
        let mut network = self.network.lock();
        let until = network.at() + length;
        let server = &mut network.servers[server];
        if server.outage.is_none() {
            server.slow_until = until;
            network.seen.note(Seen::SlowServer);
        }
    }

    /// Lets a server, or all of them, refuse some commands for a while.
    pub(super) fn refuse(&mut self) {
        let refusal = Refusal::draw(&mut self.rng);
        let length = self.rng.around(self.max_ttl() / 2) + MILLI;
        self.spoil(length, |network, server| {
            network.servers[server].refuse_commands(refusal);
        });
    }

    /// Lets a server, or all of them, not say what they are.
    pub(super) fn withhold(&mut self) {
        let what = Withheld::draw(&mut self.rng);
        let length = self.rng.around(self.max_ttl()) + MILLI;
        self.spoil(length, |network, server| {
            network.servers[server].withhold(Some(what));
            network.seen.note(Seen::Reticence);
        });
    }

    /// Does this to a server that is up, or to all of them, until they recover after this time.
    fn spoil(&mut self, length: u64, spoil: impl Fn(&mut Network, usize)) {
        for server in self.some_or_all() {
            let mut network = self.network.lock();
            if network.servers[server].outage.is_none() {
                spoil(&mut network, server);
                drop(network);
                self.push(length, move |world| {
                    world.network.lock().servers[server].recover();
                });
            }
        }
    }

    fn some_or_all(&mut self) -> Vec<usize> {
        if self.rng.chance(200_000) {
            let network = self.network.lock();
            let addresses = 0..self.scale.servers;
            addresses.map(|it| network.machine(it)).collect()
        } else {
            vec![self.some_server()]
        }
    }
}
