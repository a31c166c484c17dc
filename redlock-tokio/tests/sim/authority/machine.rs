//! What servers are in the words of their authority: masters, replicas, and masters that were replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_tokio::{
    NodeError, Role,
    node::{Origin, Replication, ReplicationId, Server as Described},
};

use super::{
    council::{Council, Reign},
    layout::Layout,
    outages::Gap,
    owners::{Kind, Owners},
};
use crate::{message::refused, rng::Rng, server::age_of_marker};

/// The machines and the members of a world with authorities. Empty in the other worlds.
#[derive(Default)]
pub(crate) struct Authorities(Option<State>);

pub(crate) struct State {
    pub(super) owners: Owners,
    pub(super) layout: Layout,
    pub(super) machines: Vec<Machine>,
    pub(super) councils: Vec<Council>,
    /// The latest owner of each seat.
    pub(super) latest: Vec<Reign>,
    /// The master of each shard, which is the latest.
    pub(super) masters: Vec<usize>,
    /// The master of each shard before.
    pub(super) former_masters: Vec<usize>,
    pub(super) outage: Option<Gap>,
    /// No node of the cluster serves while a shard has no master (`cluster-require-full-coverage`).
    pub(super) needs_full_coverage: bool,
}

pub(super) struct Machine {
    pub(super) is_replica: bool,
    /// The seats whose keys it serves.
    pub(super) owns: BTreeSet<usize>,
    /// It carries out nothing until then, and everything afterwards.
    pub(super) stands_still_until: u64,
    /// Counts its promotions since its process started.
    pub(super) promotions: u32,
    /// Counts the starts of its process.
    pub(super) starts: u32,
    /// When its markers were written, on its clock.
    marks: BTreeMap<Mark, u64>,
}

/// A marker on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// Of a history of its keys.
    History { process: u32, promotions: u32 },
    /// Of a tenure.
    Tenure { seat: usize, epoch: u64 },
}

impl Authorities {
    pub(crate) fn new(owners: Owners, rng: &mut Rng) -> Self {
        let layout = Layout::new(owners.kind);
        let masters: Vec<_> = (0..layout.shards())
            .map(|shard| layout.first_master(shard))
            .collect();
        let latest: Vec<_> = (0..layout.seats())
            .map(|seat| Reign {
                machine: masters[seat % masters.len()],
                epoch: 1,
            })
            .collect();
        let owned_by = |machine: usize| {
            let seats = latest.iter().enumerate();
            seats
                .filter(move |(_, it)| it.machine == machine)
                .map(|(seat, _)| seat)
        };
        let machines = (0..layout.machines()).map(|machine| Machine {
            is_replica: !masters.contains(&machine),
            owns: owned_by(machine).collect(),
            stands_still_until: 0,
            promotions: 0,
            starts: 0,
            marks: BTreeMap::new(),
        });
        let machines = machines.collect();
        let councils = layout.councils().into_iter();
        Self(Some(State {
            owners,
            layout,
            machines,
            councils: councils.map(|it| Council::new(layout, it, rng)).collect(),
            latest,
            former_masters: masters.clone(),
            masters,
            outage: None,
            needs_full_coverage: owners.kind == Kind::Cluster && rng.bool(),
        }))
    }

    pub(super) fn state(&mut self) -> Option<&mut State> {
        self.0.as_mut()
    }

    /// Returns the server of the latest owner of each seat. `None` without authorities.
    pub(crate) fn owners_now(&self) -> Option<Vec<usize>> {
        let State {
            layout,
            latest,
            machines,
            owners,
            ..
        } = self.0.as_ref()?;
        let seats = latest.iter().enumerate().filter(|(seat, it)| {
            let refusal = machines[it.machine].refusal(*seat, owners.kind);
            refusal.is_none()
        });
        let servers = seats.map(|(seat, it)| layout.server(seat, it.machine));
        Some(servers.collect())
    }

    /// Returns whether there are any.
    pub(crate) fn exist(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the servers that end and start together with this one.
    pub(crate) fn servers_with(&self, server: usize) -> Vec<usize> {
        match &self.0 {
            Some(State { layout, .. }) => layout.servers_of(layout.machine_of(server)),
            None => vec![server],
        }
    }

    /// Notes that a server's process has started again.
    pub(crate) fn handle_start(&mut self, server: usize, keeps_keys: bool) {
        if let Some(state) = &mut self.0 {
            let machine = state.layout.machine_of(server);
            state.machines[machine].restart(keeps_keys);
        }
    }
}

impl Machine {
    /// Makes it a master that has another history from now on.
    pub(super) fn promote(&mut self) {
        self.is_replica = false;
        self.promotions += 1;
    }

    /// Makes it a replica, which has what its master has.
    pub(super) fn demote(&mut self) {
        self.is_replica = true;
        self.owns.clear();
        self.marks.clear();
    }

    fn restart(&mut self, keeps_keys: bool) {
        self.promotions = 0;
        self.starts += 1;
        self.stands_still_until = 0;
        if !keeps_keys {
            self.marks.clear();
        }
    }

    pub(super) fn describe(&self, described: Described, kind: Kind, index: usize) -> Described {
        let Described::Known(mut info) = described else {
            return described;
        };
        let id = |promotions| {
            let text = format!("{index:010}{:010}{promotions:020}", self.starts);
            ReplicationId::new(text.as_bytes().try_into().expect("forty digits"))
        };
        let origin = match self.promotions {
            0 => Origin::Own,
            some => Origin::Continues(id(some - 1)),
        };
        info.replication = Some(Replication {
            id: id(self.promotions),
            origin,
        });
        info.in_cluster = kind == Kind::Cluster;
        if self.is_replica {
            info.role = Role::ReplicaOf("the master".into());
        }
        Described::Known(info)
    }

    pub(super) fn refusal(&self, seat: usize, kind: Kind) -> Option<NodeError> {
        let refused = |code| refused(code, "another is the owner");
        match kind {
            Kind::Sentinels { .. } => self.is_replica.then(|| refused("READONLY")),
            Kind::Cluster => (!self.owns.contains(&seat)).then(|| refused("MOVED")),
        }
    }

    /// Returns the age of a marker, which is written if there is none.
    pub(super) fn age(&mut self, now: u64, mark: Mark) -> Duration {
        age_of_marker(*self.marks.entry(mark).or_insert(now), now)
    }
}
