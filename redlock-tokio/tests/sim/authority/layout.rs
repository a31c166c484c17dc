use super::owners::Kind;
use crate::{clock::Rate, rng::Rng, server::Server};

/// How many machines a group of sentinels watches.
const MACHINES_OF_GROUP: usize = 3;

/// How many sentinels a group has.
const SENTINELS: usize = 3;

/// How many shards the cluster has, each with a master and a replica.
const SHARDS: usize = 3;

/// How many slots of the cluster vote.
const VOTERS: usize = 3;

/// Which machine serves what at the beginning, and the numbers of its servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    kind: Kind,
}

impl Layout {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind }
    }

    pub(crate) fn seats(self) -> usize {
        match self.kind {
            Kind::Sentinels { groups } => groups,
            Kind::Cluster => VOTERS,
        }
    }

    pub(crate) fn machines(self) -> usize {
        match self.kind {
            Kind::Sentinels { groups } => groups * MACHINES_OF_GROUP,
            Kind::Cluster => 2 * SHARDS,
        }
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
            Kind::Sentinels { .. } => server / MACHINES_OF_GROUP,
            Kind::Cluster => server / self.machines(),
        }
    }

    /// Returns all servers of a machine.
    pub(crate) fn servers_of(self, machine: usize) -> Vec<usize> {
        match self.kind {
            Kind::Sentinels { .. } => vec![machine],
            Kind::Cluster => (0..self.seats())
                .map(|seat| self.server(seat, machine))
                .collect(),
        }
    }

    /// Returns the shard of a machine: the machines that copy each other.
    pub(super) fn shard_of(self, machine: usize) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => machine / MACHINES_OF_GROUP,
            Kind::Cluster => machine % SHARDS,
        }
    }

    pub(super) fn shards(self) -> usize {
        match self.kind {
            Kind::Sentinels { groups } => groups,
            Kind::Cluster => SHARDS,
        }
    }

    /// Returns the first master of a shard.
    pub(super) fn first_master(self, shard: usize) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => shard * MACHINES_OF_GROUP,
            Kind::Cluster => shard,
        }
    }

    /// Returns the first owner of a seat.
    pub(super) fn first_master_of(self, seat: usize) -> usize {
        self.first_master(seat % self.shards())
    }

    /// Returns the council that names the owner of a seat.
    pub(crate) fn council_of(self, seat: usize) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => seat,
            Kind::Cluster => 0,
        }
    }

    /// Returns the seats of each council.
    pub(super) fn councils(self) -> Vec<Vec<usize>> {
        match self.kind {
            Kind::Sentinels { groups } => (0..groups).map(|seat| vec![seat]).collect(),
            Kind::Cluster => vec![(0..VOTERS).collect()],
        }
    }

    /// Returns how many members each council has.
    pub(crate) fn members(self) -> usize {
        match self.kind {
            Kind::Sentinels { .. } => SENTINELS,
            Kind::Cluster => self.machines(),
        }
    }

    /// Returns the machine that a member runs on, if it shares the fate of a server.
    pub(super) fn machine_of_member(self, member: usize) -> Option<usize> {
        (self.kind == Kind::Cluster).then_some(member)
    }

    /// Creates the servers. Those of one machine have one process and one clock.
    pub(crate) fn create_servers(self, rng: &mut Rng) -> Vec<Server> {
        let rates: Vec<_> = (0..self.machines())
            .map(|_| Rate::draw_within(rng))
            .collect();
        let machines = (0..self.servers()).map(|server| self.machine_of(server));
        machines
            .map(|machine| Server::new(machine as u32, rates[machine]))
            .collect()
    }
}
