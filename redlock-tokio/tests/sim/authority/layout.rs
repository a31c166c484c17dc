use super::owners::Kind;
use crate::{clock::Rate, rng::Rng, server::Server};

/// How many sentinels a group has, and how many machines it watches.
const OF_GROUP: usize = 3;

/// How many shards the cluster has, and how many of its slots vote.
const SHARDS: usize = 3;

/// A master and its replica.
const OF_SHARD: usize = 2;

/// Which machine serves what at the beginning, and the numbers of its servers.
///
/// The machines of a shard, or of a group, copy each other. Each shard has one seat at the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    kind: Kind,
}

impl Layout {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind }
    }

    /// Returns how many seats there are, and how many shards.
    pub(crate) fn seats(self) -> usize {
        match self.kind {
            Kind::Sentinels { groups } => groups,
            Kind::Cluster => SHARDS,
        }
    }

    pub(crate) fn machines(self) -> usize {
        self.seats() * self.machines_of_shard()
    }

    /// Returns how many servers there are: in a cluster one for each machine and seat.
    pub(crate) fn servers(self) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => self.machines(),
            Kind::Cluster => self.machines() * self.seats(),
        }
    }

    /// Returns the server with the keys that a machine has for a seat.
    pub(crate) fn server(self, seat: usize, machine: usize) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => machine,
            Kind::Cluster => seat * self.machines() + machine,
        }
    }

    pub(crate) fn machine_of(self, server: usize) -> usize {
        server % self.machines()
    }

    pub(crate) fn seat_of(self, server: usize) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => self.shard_of(server),
            Kind::Cluster => server / self.machines(),
        }
    }

    /// Returns all servers of a machine.
    pub(crate) fn servers_of(self, machine: usize) -> Vec<usize> {
        let servers = 0..self.servers();
        servers
            .filter(|it| self.machine_of(*it) == machine)
            .collect()
    }

    pub(super) fn shard_of(self, machine: usize) -> usize {
        machine / self.machines_of_shard()
    }

    /// Returns the first master of a shard, and so the first owner of its seat.
    pub(super) fn first_master(self, shard: usize) -> usize {
        shard * self.machines_of_shard()
    }

    pub(crate) fn councils(self) -> usize {
        match self.kind {
            Kind::Sentinels { groups } => groups,
            Kind::Cluster => 1,
        }
    }

    /// Returns the council that names the owner of a seat.
    pub(super) fn council_of(self, seat: usize) -> usize {
        seat % self.councils()
    }

    /// Returns the seats whose owners a council names.
    pub(crate) fn seats_of(self, council: usize) -> Vec<usize> {
        let seats = 0..self.seats();
        seats.filter(|it| self.council_of(*it) == council).collect()
    }

    /// Returns how many members each council has.
    pub(crate) fn members(self) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => OF_GROUP,
            Kind::Cluster => self.machines(),
        }
    }

    /// Returns the machine that a member runs on, if it shares the fate of a server.
    pub(super) fn machine_of_member(self, member: usize) -> Option<usize> {
        (self.kind == Kind::Cluster).then_some(member)
    }

    /// Creates the servers. Those of one machine have one process and one clock.
    pub(crate) fn create_servers(self, rng: &mut Rng) -> Vec<Server> {
        let machines = 0..self.machines();
        let rates: Vec<_> = machines.map(|_| Rate::draw_within(rng)).collect();
        let create = |server| {
            let machine = self.machine_of(server);
            let server = Server::new(machine as u32, rates[machine]);
            let is_replica = self.first_master(self.shard_of(machine)) != machine;
            server.named(self.kind == Kind::Cluster, is_replica)
        };
        (0..self.servers()).map(create).collect()
    }

    fn machines_of_shard(self) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => OF_GROUP,
            Kind::Cluster => OF_SHARD,
        }
    }
}
