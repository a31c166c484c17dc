//! How servers lose keys without a sign, which is beyond the assumptions.

use crate::{
    clock::{MILLI, SECOND},
    seen::Seen,
    world::World,
};

impl World {
    /// Lets servers delete keys that have not expired, because their memory is short.
    pub(super) fn evict(&mut self) {
        for server in self.share_of_servers() {
            let share = self.rng.pick(&[300_000, 1_000_000]);
            let mut network = self.network.lock();
            let at = network.at();
            let evicted = network.servers[server].evict(at, || self.rng.chance(share));
            for key in evicted {
                network.seen.note(Seen::Eviction);
                network.notify_of(at, server, &key);
            }
        }
    }

    /// Lets servers delete everything.
    pub(super) fn flush(&mut self) {
        for server in self.share_of_servers() {
            let mut network = self.network.lock();
            let at = network.at();
            network.seen.note(Seen::Flush);
            network.servers[server].forget_keys();
            network.notify_of_all(at, server);
        }
    }

    /// Lets clocks of servers step forward, even those of servers that have just restarted.
    pub(super) fn step_clocks(&mut self) {
        let by = self.rng.around(2 * self.max_ttl());
        let restarts = self.rng.chance(200_000);
        for server in self.share_of_servers() {
            {
                let mut network = self.network.lock();
                network.seen.note(Seen::ClockStep);
                network.servers[server].step_clock(by);
            }
            if restarts {
                self.restart(server, MILLI);
                let later = self.rng.around(SECOND);
                self.push(later, move |world| world.step_clock_of(server, by));
            }
        }
    }

    /// The clock of a server that has just restarted steps forward, so that it seems to be up for longer.
    fn step_clock_of(&mut self, server: usize, by: u64) {
        let mut network = self.network.lock();
        if !self.is_calm && network.servers[server].outage.is_none() {
            network.seen.note(Seen::ClockStepInQuarantine);
            network.servers[server].step_clock(by);
        }
    }

    /// Draws servers: few, many, or all.
    fn share_of_servers(&mut self) -> Vec<usize> {
        let share = self.rng.pick(&[200_000, 500_000, 1_000_000]);
        let addresses = 0..self.scale.servers;
        let hit: Vec<_> = addresses.filter(|_| self.rng.chance(share)).collect();
        let network = self.network.lock();
        hit.into_iter().map(|it| network.machine(it)).collect()
    }
}
