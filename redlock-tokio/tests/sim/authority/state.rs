//! What an authority and its servers know of owners.

use std::collections::BTreeSet;

use redlock_tokio::NodeError;

use super::{
    council::{Council, Reign},
    layout::Layout,
    owners::{Kind, Owners},
};
use crate::{message::refused, network::Network, rng::Rng, world::World};

/// The machines and the members of a world with authorities.
pub(crate) struct Authorities {
    pub(super) owners: Owners,
    pub(super) layout: Layout,
    /// The seats whose keys each machine serves.
    pub(super) owned: Vec<BTreeSet<usize>>,
    pub(super) councils: Vec<Council>,
    /// The latest owner of each seat.
    pub(super) latest: Vec<Reign>,
    /// The master of each shard, which is the latest.
    pub(super) masters: Vec<usize>,
    /// The master of each shard before.
    pub(super) former_masters: Vec<usize>,
    /// No node of the cluster serves while a shard has no master (`cluster-require-full-coverage`).
    pub(super) needs_full_coverage: bool,
}

impl Authorities {
    pub(crate) fn new(owners: Owners, rng: &mut Rng) -> Self {
        let layout = Layout::new(owners.kind);
        let masters: Vec<_> = (0..layout.seats())
            .map(|it| layout.first_master(it))
            .collect();
        let owned = |machine| {
            let seats = (0..layout.seats()).filter(|it| layout.first_master(*it) == machine);
            seats.collect()
        };
        Self {
            owners,
            layout,
            owned: (0..layout.machines()).map(owned).collect(),
            councils: (0..layout.councils())
                .map(|it| Council::new(layout, it, rng))
                .collect(),
            latest: masters.iter().map(|it| Reign::first(*it)).collect(),
            former_masters: masters.clone(),
            masters,
            needs_full_coverage: owners.kind == Kind::Cluster && rng.bool(),
        }
    }

    pub(super) fn is_owner(&self, seat: usize, machine: usize) -> bool {
        self.owned[machine].contains(&seat)
    }
}

impl World {
    /// Calls `f` with the authorities of this world, which has some.
    pub(super) fn with_authority<T>(&self, f: impl FnOnce(&mut Authorities) -> T) -> T {
        f(self.network.lock().authority())
    }
}

impl Network {
    /// Returns the authorities of a world that has some.
    pub(super) fn authority(&mut self) -> &mut Authorities {
        self.authorities.as_mut().expect("a world of authorities")
    }

    /// Returns the servers that clients write to now: of an authority, those of the latest owners.
    pub(crate) fn writable_servers(&self, addresses: usize) -> Vec<usize> {
        let Some(it) = &self.authorities else {
            return (0..addresses).map(|it| self.machine(it)).collect();
        };
        let latest = it.latest.iter().enumerate();
        let owners = latest.map(|(seat, latest)| it.layout.server(seat, latest.machine));
        owners.filter(|it| self.refusal_of(*it).is_none()).collect()
    }

    /// Returns the servers that end and start together with this one.
    pub(crate) fn servers_with(&self, server: usize) -> Vec<usize> {
        match &self.authorities {
            Some(Authorities { layout, .. }) => layout.servers_of(layout.machine_of(server)),
            None => vec![server],
        }
    }

    /// Returns why a server refuses all commands for keys, if it is not the owner of its seat.
    pub(super) fn refusal_of(&self, server: usize) -> Option<NodeError> {
        let it = self.authorities.as_ref()?;
        let (seat, machine) = (it.layout.seat_of(server), it.layout.machine_of(server));
        let (is_refused, code) = match it.owners.kind {
            Kind::Sentinels { .. } => (self.servers[server].is_replica(), "READONLY"),
            Kind::Cluster => (!it.is_owner(seat, machine), "MOVED"),
        };
        is_refused.then(|| refused(code, "another is the owner"))
    }
}
