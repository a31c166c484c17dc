//! What goes wrong with routes.

use crate::{network::Route, seen::Seen, world::World};

impl World {
    /// Cuts off one address, one process, or some pairs of both, in one direction or in both.
    pub(super) fn stall(&mut self) {
        let length = self.rng.around(self.max_ttl() / 2);
        let until = self.at() + length;
        let (requests, answers) = self.rng.pick(&[(until, until), (until, 0), (0, until)]);
        let shape = self.rng.u8(..3);
        let (address, process) = (
            self.rng.usize(..self.scale.servers),
            self.rng.usize(..self.scale.processes),
        );
        self.network.lock().seen.note(Seen::Stall);
        for route in self.routes() {
            let is_hit = match shape {
                0 => route.address == address,
                1 => route.process == process && self.rng.chance(700_000),
                _ => self.rng.chance(200_000),
            };
            if is_hit {
                self.network.lock().stall(route, requests, answers);
            }
        }
    }

    fn routes(&self) -> Vec<Route> {
        let of = |process| (0..self.scale.servers).map(move |address| Route { process, address });
        (0..self.scale.processes).flat_map(of).collect()
    }
}
