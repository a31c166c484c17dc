//! What goes wrong with replicas and masters.

use crate::{
    clock::{MILLI, SECOND},
    faults::Connections,
    seen::Seen,
    world::World,
};

impl World {
    /// Promotes the replica of one master, or those of all, as where a zone is lost.
    pub(super) fn promote_some(&mut self, connections: Connections) {
        if self.rng.chance(300_000) {
            for address in 0..self.scale.servers {
                self.promote(address, connections);
            }
        } else {
            let address = self.rng.usize(..self.scale.servers);
            self.promote(address, connections);
        }
    }

    /// Lets a replica that lags behind take the place of a master, behind the same address.
    fn promote(&mut self, address: usize, connections: Connections) {
        let lag = self.rng.around(self.max_ttl() / 2);
        let mut network = self.network.lock();
        let at = network.at();
        let old = network.machine(address);
        // Each address has two machines.
        let count = self.scale.servers;
        let new = (old + count) % (2 * count);
        if network.servers[new].outage.is_some() {
            return;
        }
        let copy = network.servers[old].replicated(at, lag, &network.servers[new]);
        let history = network.servers[old].history();
        network.servers[new].take_over(copy, history);
        network.move_address(address, new);
        network.seen.note(match connections {
            Connections::End => Seen::Promotion,
            Connections::GoOn => Seen::TwoMasters,
        });
        drop(network);
        match connections {
            Connections::End => self.depose(old),
            Connections::GoOn => {
                let length = self.rng.around(self.max_ttl());
                self.push(length, move |world| world.depose(old));
            }
        }
    }

    /// A server that was replaced loses its connections.
    fn depose(&mut self, server: usize) {
        let mut network = self.network.lock();
        let addresses = 0..self.scale.servers;
        // It may be the master again by now.
        if addresses
            .into_iter()
            .all(|it| network.machine(it) != server)
        {
            network.servers[server].end_connections();
            network.reset_all(server);
        }
    }

    /// Lets a master become a replica without its keys, whose connections go on. Later it is a master again.
    pub(super) fn demote(&mut self, connections: Connections) {
        let server = self.some_server();
        let length = match connections {
            Connections::End => self.rng.around(self.max_ttl() / 2),
            Connections::GoOn => self.rng.around(100 * MILLI).min(SECOND),
        };
        let mut network = self.network.lock();
        let it = &mut network.servers[server];
        if it.outage.is_some() || it.is_replica() {
            return;
        }
        it.demote(server + 1000);
        network.seen.note(match connections {
            Connections::End => Seen::Demotion,
            Connections::GoOn => Seen::UnseenDemotion,
        });
        drop(network);
        self.push(length, move |world| world.reinstate(server, connections));
    }

    /// A replica becomes a master again.
    fn reinstate(&mut self, server: usize, connections: Connections) {
        let mut network = self.network.lock();
        if network.servers[server].outage.is_some() || !network.servers[server].is_replica() {
            return;
        }
        network.servers[server].reinstate();
        // Sentinels end the connections to a server whose role they change.
        if connections == Connections::End {
            network.servers[server].end_connections();
            network.reset_all(server);
        }
    }
}
