//! What goes wrong with routes.

use crate::{message::Loses, network::Route, seen::Seen, world::World};

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
        for route in self.routes() {
            let is_hit = match shape {
                0 => route.address == address,
                1 => route.process == process && self.rng.chance(700_000),
                _ => self.rng.chance(200_000),
            };
            if is_hit {
                let mut network = self.network.lock();
                network.stall(route, requests, answers);
                if network.has_connection(route) {
                    network.seen.note(Seen::Stall);
                }
            }
        }
    }

    /// Lets some connections lose all requests or all answers, for good.
    pub(super) fn silence(&mut self) {
        let loses = self.rng.pick(&[Loses::Requests, Loses::Answers]);
        let share = self.rng.pick(&[100_000, 100_000, 1_000_000]);
        let rng = &mut self.rng;
        self.network.lock().silence(loses, || rng.chance(share));
    }

    fn routes(&self) -> Vec<Route> {
        let of = |process| (0..self.scale.servers).map(move |address| Route { process, address });
        (0..self.scale.processes).flat_map(of).collect()
    }
}
