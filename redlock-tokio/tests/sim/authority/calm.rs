//! The end of the faults: all members agree, and each shard has one master.

use super::council::Reign;
use crate::world::World;

impl World {
    /// Makes the members agree on the latest owners, and the others replicas. Of two voters on one server, one moves
    /// away: each process counts the one that it has seen first, and so those that count the same one would go first
    /// for ever.
    pub(crate) fn calm_authorities(&mut self) {
        let at = self.at();
        if self.configuration.owners.is_none() {
            return;
        }
        for server in &mut self.network.lock().servers {
            server.stands_still_until = server.stands_still_until.min(at);
        }
        let machines = self.with_authority(|it| {
            for seat in 0..it.latest.len() {
                let shard = it.layout.shard_of(it.latest[seat].machine);
                let machine = it.masters[shard];
                it.owned[machine].insert(seat);
                let council = &mut it.councils[it.layout.council_of(seat)];
                let latest = it.latest[seat];
                if latest.machine != machine || !council.agrees(seat, latest) {
                    let epoch = council.latest_epoch() + 1;
                    it.latest[seat] = Reign { machine, epoch };
                }
                for member in &mut council.members {
                    member.calm(at);
                    member.follow(at, seat, it.latest[seat]);
                }
            }
            it.layout.machines()
        });
        for machine in 0..machines {
            self.push(0, move |world| world.demote_owner(machine));
        }
        while let Some((seat, from, to)) = self.doubled_seat() {
            self.move_seat(seat, from, to);
        }
    }

    /// Returns a seat on a machine that has another one, the machine, and a master that has none.
    fn doubled_seat(&self) -> Option<(usize, usize, usize)> {
        self.with_authority(|it| {
            let owners: Vec<_> = it.latest.iter().map(|it| it.machine).collect();
            let seat = (0..owners.len()).find(|&seat| owners[..seat].contains(&owners[seat]))?;
            let to = it.masters.iter().find(|it| !owners.contains(it))?;
            Some((seat, owners[seat], *to))
        })
    }
}
