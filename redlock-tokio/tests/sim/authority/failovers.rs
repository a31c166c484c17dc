//! Replicas take the place of masters, and slots move.

use super::council::{Reign, Succession};
use crate::{
    clock::{MILLI, SECOND},
    network::Network,
    seen::Seen,
    server::{Disk, Outage},
    world::World,
};

/// What becomes of the old owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    /// It does not hear of the failover, and goes on.
    GoesOn,
    /// Its process has ended, and starts again as a master.
    Crashes,
    /// It stood still, and carries out later what was sent to it.
    StandsStill,
    /// It becomes a replica at once.
    Abdicates,
}

impl World {
    /// A replica that lags takes the place of an owner.
    pub(crate) fn fail_over(&mut self) {
        let shard = self.draw_shard();
        let Some(succession) = self.draw_succession(shard) else {
            return;
        };
        let fate = self.rng.pick(&[
            Fate::GoesOn,
            Fate::Crashes,
            Fate::StandsStill,
            Fate::Abdicates,
        ]);
        let machine = succession.old.machine;
        self.tell((fate, succession), || format!("{fate:?}: {succession:?}"));
        let detected_in = self.rng.around(SECOND / 2);
        let (promoted_in, demoted_in) = match fate {
            Fate::GoesOn => (0, self.rng.around(2 * self.max_ttl())),
            Fate::Crashes => {
                let returns_in = self.rng.around(self.max_ttl() / 2);
                self.crash_machine(machine, returns_in);
                (detected_in, returns_in + self.rng.around(5 * SECOND))
            }
            Fate::StandsStill => {
                let length = self.rng.around(self.max_ttl());
                self.stop_machine(machine, length);
                (detected_in, length + self.rng.around(SECOND / 2))
            }
            Fate::Abdicates => (0, self.rng.around(20 * MILLI)),
        };
        self.push(promoted_in, move |world| {
            world.promote_owner(succession);
        });
        self.push(promoted_in + demoted_in, move |world| {
            world.demote_owner(machine);
        });
    }

    /// Several failovers of a shard follow each other within a moment.
    pub(crate) fn flap(&mut self) {
        let shard = self.draw_shard();
        let left = self.rng.u32(2..=5);
        self.push(0, move |world| world.flap_on(shard, left));
    }

    fn flap_on(&mut self, shard: usize, left: u32) {
        if left == 0 || self.is_calm {
            return;
        }
        if let Some(succession) = self.draw_succession(shard) {
            let is_done = self.promote_owner(Succession {
                spreads_in: 20 * MILLI,
                ..succession
            });
            if is_done {
                self.network.lock().seen.note(Seen::Flapping);
            }
            self.demote_owner(succession.old.machine);
        }
        let delay = self.rng.around(100 * MILLI) + MILLI;
        self.push(delay, move |world| world.flap_on(shard, left - 1));
    }

    pub(super) fn draw_shard(&mut self) -> usize {
        let shards = self.with_authority(|it| it.layout.seats());
        self.rng.usize(..shards)
    }

    /// Decides on a failover: which replica takes the place of which owner, by the word of which member.
    pub(super) fn draw_succession(&mut self, shard: usize) -> Option<Succession> {
        let pick = self.rng.usize(..1000);
        let goes_back = self.rng.chance(600_000);
        let spreads_in = self.rng.pick(&[20 * MILLI, SECOND / 2]);
        let network = self.network.lock();
        let it = network.authorities.as_ref()?;
        let layout = it.layout;
        let in_shard = |machine: &usize| layout.shard_of(*machine) == shard;
        let machines = (0..layout.machines()).filter(in_shard);
        let replicas: Vec<_> = machines.filter(|it| network.is_ready(*it)).collect();
        let former = it.former_masters[shard];
        let new = if goes_back && replicas.contains(&former) {
            former
        } else {
            *replicas.get(pick % replicas.len().max(1))?
        };
        // In a cluster the replica itself is elected, for all slots of its master.
        let (member, seat) = match layout.machine_of_member(new) {
            Some(machine) => (machine, *it.owned[it.masters[shard]].first()?),
            None => (pick % layout.members(), shard),
        };
        let council = layout.council_of(seat);
        let decides = &it.councils[council].members[member];
        let old = decides.reign(seat);
        let knows_master = in_shard(&old.machine) && old.machine != new;
        (decides.is_active(network.at()) && knows_master).then_some(Succession {
            council,
            member,
            old,
            new,
            spreads_in,
        })
    }

    /// Promotes a replica, if it can still be promoted. Returns whether it was.
    pub(super) fn promote_owner(&mut self, succession: Succession) -> bool {
        let Succession {
            council,
            member,
            old,
            new,
            spreads_in,
        } = succession;
        let at = self.at();
        if self.is_calm || !self.network.lock().is_ready(new) {
            return false;
        }
        let elected = self.with_authority(|it| {
            let seats: Vec<_> = it.owned[old.machine].iter().copied().collect();
            let decides = &it.councils[council].members[member];
            let knows = seats.iter().any(|seat| decides.reign(*seat) == old);
            let epoch = match it.layout.machine_of_member(member) {
                // An election, in which each vote is for the latest epoch.
                Some(_) => it.councils[council].latest_epoch() + 1,
                // Two sentinels that promote at the same time may choose the same epoch.
                None => old.epoch + 1,
            };
            (knows && decides.is_active(at)).then_some((seats, epoch))
        });
        let Some((seats, epoch)) = elected else {
            return false;
        };
        self.tell(succession, || format!("{new} for {old:?} in epoch {epoch}"));
        let lacks = self.rng.pick(&[200_000, 700_000, 1_000_000]);
        self.hand_over(&seats, old.machine, new, lacks);
        self.network.lock().promote(new);
        let reign = Reign {
            machine: new,
            epoch,
        };
        if !self.note_promotion(&seats, reign) {
            // Another replica was promoted at the same time, and the authority settles on one of the two.
            let delay = self.rng.around(self.max_ttl());
            self.push(delay, move |world| world.demote_owner(new));
        }
        self.spread(council, member, &seats, reign, spreads_in);
        true
    }

    /// Notes a promotion. Returns whether no other has a later epoch.
    fn note_promotion(&self, seats: &[usize], reign: Reign) -> bool {
        self.with_authority(|it| {
            let shard = it.layout.shard_of(reign.machine);
            let mut is_latest = false;
            for seat in seats {
                if reign.epoch > it.latest[*seat].epoch {
                    it.latest[*seat] = reign;
                    is_latest = true;
                }
            }
            if is_latest {
                it.former_masters[shard] = it.masters[shard];
                it.masters[shard] = reign.machine;
            }
            is_latest
        })
    }

    /// Makes a member turn to an owner now, and the others when they hear of it.
    fn spread(
        &mut self,
        council: usize,
        first: usize,
        seats: &[usize],
        reign: Reign,
        spreads_in: u64,
    ) {
        let members = self.with_authority(|it| it.layout.members());
        for member in 0..members {
            let delay = if member == first {
                0
            } else {
                self.rng.around(spreads_in)
            };
            let seats = seats.to_vec();
            self.push(delay, move |world| {
                world.follow(council, member, seats, reign);
            });
        }
    }

    /// Copies the keys of some seats from one machine to another, which lacks each with this chance of a million.
    fn hand_over(&mut self, seats: &[usize], from: usize, to: usize, lacks: u32) {
        let network = &mut *self.network.lock();
        let at = network.at();
        let it = network
            .authorities
            .as_mut()
            .expect("a world of authorities");
        let mut lost = 0;
        for &seat in seats {
            let [old, new] = [from, to].map(|machine| it.layout.server(seat, machine));
            let copy = network.servers[old].replicated(at, 0, &network.servers[new]);
            let rng = &mut self.rng;
            network.servers[new].take_keys(copy, |_| rng.chance(lacks));
            lost += network.servers[old].live_keys(at) - network.servers[new].live_keys(at);
            it.owned[to].insert(seat);
        }
        if lost > 0 {
            network.seen.note(Seen::FailoverLosesLock);
        }
    }

    /// An old owner hears that it is a replica, unless it is the owner again.
    pub(super) fn demote_owner(&mut self, machine: usize) {
        let network = &mut *self.network.lock();
        let at = network.at();
        let layout = network.authority().layout;
        let shard = layout.shard_of(machine);
        let master = network.authority().masters[shard];
        let servers = layout.servers_of(machine);
        let it = &network.servers[servers[0]];
        if master == machine || it.is_replica() {
            return;
        }
        if !it.is_running(at) {
            let later = it.stands_still_until.max(at + SECOND);
            return network
                .queue
                .push(later, move |world| world.demote_owner(machine));
        }
        network.authority().owned[machine].clear();
        for server in servers {
            network.servers[server].demote(master);
            network.servers[server].end_connections();
            network.reset_all(server);
        }
    }

    /// A slot moves to another shard with all its keys.
    pub(crate) fn move_slot(&mut self) {
        let at = self.at();
        let seats = self.with_authority(|it| it.layout.seats());
        let (seat, pick) = (self.rng.usize(..seats), self.rng.usize(..1000));
        let ends = self.with_authority(|it| {
            let from = it.latest[seat].machine;
            // Two voters on one server are enough: all three would leave some processes without a majority.
            let has_room = |to: &usize| *to != from && it.owned[*to].len() < 2;
            let others: Vec<_> = it.masters.iter().copied().filter(has_room).collect();
            let to = *others.get(pick % others.len().max(1))?;
            let is_active = it.councils[0].members.get(to)?.is_active(at);
            let is_master = it.is_owner(seat, from) && it.masters.contains(&from);
            (is_active && is_master).then_some((from, to))
        });
        if let Some((from, to)) = ends {
            self.move_seat(seat, from, to);
        }
    }

    pub(super) fn move_seat(&mut self, seat: usize, from: usize, to: usize) {
        self.tell((seat, from, to), || {
            format!("seat {seat} moves from {from} to {to}")
        });
        self.hand_over(&[seat], from, to, 0);
        let (seats, reign) = {
            let network = &mut *self.network.lock();
            let it = network
                .authorities
                .as_mut()
                .expect("a world of authorities");
            it.owned[from].remove(&seat);
            // The new owner takes a later epoch, for all its slots.
            let seats: Vec<_> = it.owned[to].iter().copied().collect();
            let epoch = it.councils[0].latest_epoch() + 1;
            let reign = Reign { machine: to, epoch };
            for seat in &seats {
                it.latest[*seat] = reign;
            }
            network.servers[it.layout.server(seat, from)].forget_keys();
            network.seen.note(Seen::SlotMove);
            if seats.len() > 1 {
                network.seen.note(Seen::SharedServer);
            }
            (seats, reign)
        };
        self.spread(0, to, &seats, reign, SECOND / 2);
    }

    fn stop_machine(&self, machine: usize, length: u64) {
        let network = &mut *self.network.lock();
        let until = network.at() + length;
        for server in network.authority().layout.servers_of(machine) {
            network.servers[server].stands_still_until = until;
        }
        network.seen.note(Seen::MachineStandsStill);
    }

    fn crash_machine(&mut self, machine: usize, returns_in: u64) {
        let outage = self.rng.pick(&[Outage::Refuses, Outage::Silent]);
        let disk = self.rng.pick(&[Disk::Empty, Disk::Complete]);
        let network = &mut *self.network.lock();
        let servers = network.authority().layout.servers_of(machine);
        network.seen.note(Seen::OwnerCrash);
        network.stop(&servers, outage, disk, returns_in);
    }
}

impl Network {
    /// Returns whether a machine is a replica that can be promoted.
    fn is_ready(&self, machine: usize) -> bool {
        let layout = self.authorities.as_ref().map(|it| it.layout);
        layout.is_some_and(|it| {
            let server = &self.servers[it.server(0, machine)];
            server.is_replica() && server.is_running(self.at())
        })
    }

    /// Makes a replica a master, with what it has.
    fn promote(&mut self, machine: usize) {
        for server in self.authority().layout.servers_of(machine) {
            self.servers[server].reinstate();
        }
        self.seen.note(Seen::Failover);
    }
}
