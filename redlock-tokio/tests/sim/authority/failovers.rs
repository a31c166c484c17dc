//! Replicas take the place of masters, and slots move.

use super::{
    council::{Reign, Succession},
    machine::State,
    outages::Gap,
};
use crate::{
    clock::{MILLI, SECOND},
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
        let Some(succession) = self.draw_succession(None) else {
            return;
        };
        let fate = self.rng.pick(&[
            Fate::GoesOn,
            Fate::Crashes,
            Fate::StandsStill,
            Fate::Abdicates,
        ]);
        // What it costs would be part of an outage that has not ended.
        self.end_outage();
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
                let until = self.at() + length;
                self.stop_machine(machine, until);
                self.network.lock().seen.note(Seen::MachineStandsStill);
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
        let shards = self.with_authority(|it| it.layout.shards());
        let shard = self.rng.usize(..shards);
        let left = self.rng.u32(2..=5);
        self.push(0, move |world| world.flap_on(shard, left));
    }

    fn flap_on(&mut self, shard: usize, left: u32) {
        let at = self.at();
        if left == 0 || self.is_calm {
            return;
        }
        if let Some(succession) = self.draw_succession_of(at, shard) {
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

    pub(super) fn draw_succession_of(&mut self, at: u64, shard: usize) -> Option<Succession> {
        let pick = self.rng.usize(..1000);
        let goes_back = self.rng.chance(600_000);
        let spreads_in = self.rng.pick(&[20 * MILLI, SECOND / 2]);
        let network = &mut *self.network.lock();
        let state = network.authorities.state()?;
        let layout = state.layout;
        let in_shard = |machine: &usize| layout.shard_of(*machine) == shard;
        let is_up = |machine: usize| network.servers[layout.server(0, machine)].outage.is_none();
        let replicas: Vec<_> = (0..layout.machines())
            .filter(in_shard)
            .filter(|it| state.machines[*it].is_replica && is_up(*it))
            .filter(|it| state.machines[*it].stands_still_until <= at)
            .collect();
        let former = state.former_masters[shard];
        let new = if goes_back && replicas.contains(&former) {
            former
        } else {
            *replicas.get(pick % replicas.len().max(1))?
        };
        // In a cluster the replica itself is elected.
        let member = match layout.machine_of_member(new) {
            Some(_) => new,
            None => pick % layout.members(),
        };
        let master = state.masters[shard];
        let seat = match layout.machine_of_member(new) {
            Some(_) => *state.machines[master].owns.first()?,
            None => shard,
        };
        let council = layout.council_of(seat);
        let it = &state.councils[council].members[member];
        let old = it.reign(seat);
        let knows_master = in_shard(&old.machine) && old.machine != new;
        (it.is_active(at) && knows_master).then_some(Succession {
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
        if self.is_calm {
            return false;
        }
        let promoted = self.with_authority(|it| {
            let is_up = it.machines[new].is_replica && it.machines[new].stands_still_until <= at;
            let seats: Vec<_> = it.machines[old.machine].owns.iter().copied().collect();
            let member = &it.councils[council].members[member];
            let knows = seats.iter().any(|seat| member.reign(*seat) == old);
            (is_up && knows && member.is_active(at)).then_some(seats)
        });
        let is_down = {
            let network = &mut *self.network.lock();
            let layout = network.authorities.state().expect("as above").layout;
            network.servers[layout.server(0, new)].outage.is_some()
        };
        let Some(seats) = promoted.filter(|_| !is_down) else {
            return false;
        };
        let epoch = self.with_authority(|it| match it.layout.machine_of_member(member) {
            // An election, in which each vote is for the latest epoch.
            Some(_) => it.councils[council].latest_epoch() + 1,
            // Two sentinels that promote at the same time may choose the same epoch.
            None => old.epoch + 1,
        });
        self.tell(succession, || format!("{new} for {old:?} in epoch {epoch}"));
        self.hand_over(&seats, old.machine, new, true);
        let reign = Reign {
            machine: new,
            epoch,
        };
        let is_latest = self.with_authority(|it| it.note_promotion(at, &seats, reign));
        if !is_latest {
            // Another replica was promoted at the same time, and the authority settles on one of the two.
            let delay = self.rng.around(self.max_ttl());
            self.push(delay, move |world| world.demote_owner(new));
        }
        self.spread(council, member, &seats, reign, spreads_in);
        true
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

    /// Copies the keys of some seats from one machine to another, which lacks some if it `lags`.
    fn hand_over(&mut self, seats: &[usize], from: usize, to: usize, lags: bool) {
        let at = self.at();
        let chance = if lags {
            self.rng.pick(&[200_000, 700_000, 1_000_000])
        } else {
            0
        };
        let network = &mut *self.network.lock();
        let state = network.authorities.state().expect("a world of authorities");
        let layout = state.layout;
        let mut lost = 0;
        let mut had = 0;
        for &seat in seats {
            let (old, new) = (layout.server(seat, from), layout.server(seat, to));
            let copy = network.servers[old].replicated(at, 0, &network.servers[new]);
            had += network.servers[old].live_keys(at);
            let rng = &mut self.rng;
            network.servers[new].take_keys(copy, |_| rng.chance(chance));
            lost += network.servers[old].live_keys(at) - network.servers[new].live_keys(at);
            state.machines[to].owns.insert(seat);
        }
        if lags {
            let machine = &mut state.machines[to];
            machine.promote();
            network.seen.note(Seen::Failover);
            if had > 0 {
                network.seen.note(Seen::FailoverUnderLock);
            }
            if lost > 0 {
                network.seen.note(Seen::FailoverLosesLock);
            }
        }
    }

    /// An old owner hears that it is a replica, unless it is the owner again.
    pub(super) fn demote_owner(&mut self, machine: usize) {
        let at = self.at();
        let network = &mut *self.network.lock();
        let state = network.authorities.state().expect("a world of authorities");
        let layout = state.layout;
        let shard = layout.shard_of(machine);
        let it = &mut state.machines[machine];
        if state.masters[shard] == machine || it.is_replica {
            return;
        }
        let servers = layout.servers_of(machine);
        let is_down = network.servers[servers[0]].outage.is_some();
        if is_down || it.stands_still_until > at {
            let later = it.stands_still_until.max(at + SECOND);
            return network
                .queue
                .push(later, move |world| world.demote_owner(machine));
        }
        it.demote();
        for server in servers {
            network.servers[server].forget_keys();
            network.servers[server].end_connections();
            network.reset_all(server);
        }
    }

    /// A slot moves to another shard with all its keys.
    pub(crate) fn move_slot(&mut self) {
        let at = self.at();
        let seats = self.with_authority(|it| it.layout.seats());
        let (seat, pick) = (self.rng.usize(..seats), self.rng.usize(..1000));
        let Some((from, to)) = self.with_authority(|it| {
            let from = it.latest[seat].machine;
            // Two voters on one server are enough: all three would leave some processes without a majority.
            let has_room = |to: &usize| *to != from && it.machines[*to].owns.len() < 2;
            let others: Vec<_> = it.masters.iter().copied().filter(has_room).collect();
            let to = *others.get(pick % others.len().max(1))?;
            let is_active = it.councils[0].members.get(to)?.is_active(at);
            let is_master = it.machines[from].owns.contains(&seat) && it.masters.contains(&from);
            (is_active && is_master).then_some((from, to))
        }) else {
            return;
        };
        self.move_seat(seat, from, to);
    }

    pub(super) fn move_seat(&mut self, seat: usize, from: usize, to: usize) {
        self.tell((seat, from, to), || {
            format!("seat {seat} moves from {from} to {to}")
        });
        self.network.lock().seen.note(Seen::SlotMove);
        self.hand_over(&[seat], from, to, false);
        let (seats, reign) = self.with_authority(|it| {
            it.machines[from].owns.remove(&seat);
            // The new owner takes a later epoch, for all its slots.
            let seats: Vec<_> = it.machines[to].owns.iter().copied().collect();
            let epoch = it.councils[0].latest_epoch() + 1;
            let reign = Reign { machine: to, epoch };
            for seat in &seats {
                it.latest[*seat] = reign;
            }
            if seats.len() > 1 {
                (seats, reign)
            } else {
                (vec![seat], reign)
            }
        });
        if seats.len() > 1 {
            self.network.lock().seen.note(Seen::SharedServer);
        }
        {
            let network = &mut *self.network.lock();
            let layout = network.authorities.state().expect("as above").layout;
            network.servers[layout.server(seat, from)].forget_keys();
        }
        self.spread(0, to, &seats, reign, SECOND / 2);
    }

    fn stop_machine(&self, machine: usize, until: u64) {
        let network = &mut *self.network.lock();
        let state = network.authorities.state().expect("a world of authorities");
        state.machines[machine].stands_still_until = until;
        for server in state.layout.servers_of(machine) {
            network.servers[server].stands_still_until = until;
        }
    }

    fn crash_machine(&mut self, machine: usize, returns_in: u64) {
        let outage = self.rng.pick(&[Outage::Refuses, Outage::Silent]);
        let disk = self.rng.pick(&[Disk::Empty, Disk::Complete]);
        let network = &mut *self.network.lock();
        let layout = network.authorities.state().expect("as above").layout;
        network.seen.note(Seen::OwnerCrash);
        network.stop(&layout.servers_of(machine), outage, disk, returns_in);
    }
}

impl State {
    /// Notes a promotion. Returns whether no other has a later epoch.
    fn note_promotion(&mut self, at: u64, seats: &[usize], reign: Reign) -> bool {
        let shard = self.layout.shard_of(reign.machine);
        let mut is_latest = false;
        for seat in seats {
            if reign.epoch > self.latest[*seat].epoch {
                self.latest[*seat] = reign;
                is_latest = true;
                self.outage = Some(Gap::new(at, reign));
            }
        }
        if is_latest {
            self.former_masters[shard] = self.masters[shard];
            self.masters[shard] = reign.machine;
        }
        is_latest
    }
}
