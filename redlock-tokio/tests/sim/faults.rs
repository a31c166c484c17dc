//! What goes wrong with machines and routes, and how often.

use crate::{
    clock::{MILLI, SECOND},
    events::Event,
    network::Route,
    seen::Seen,
    server::Outage,
    world::World,
};

/// A fault that comes again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A server's process ends, and starts again later.
    ServerEnd,
    /// Routes stop in one direction or in both.
    Stall,
    /// A process stands still.
    Pause,
    /// A process ends at once.
    Crash,
    /// A process is told that any key may be free.
    Invention,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::ServerEnd,
        Self::Stall,
        Self::Pause,
        Self::Crash,
        Self::Invention,
    ];

    /// Returns the mean time between two of a kind, at severity 1.
    fn mean(self) -> u64 {
        match self {
            Self::ServerEnd | Self::Crash => 30 * SECOND,
            Self::Stall | Self::Pause => 10 * SECOND,
            Self::Invention => 5 * SECOND,
        }
    }
}

impl World {
    pub(crate) fn plan_faults(&mut self) {
        for fault in Fault::ALL {
            self.plan(fault);
        }
    }

    fn plan(&mut self, fault: Fault) {
        let mean = fault.mean() / u64::from(self.configuration.severity);
        let delay = self.rng.around(mean) + MILLI;
        self.push(delay, Event::Fault(fault));
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.is_calm {
            return;
        }
        self.plan(fault);
        // Each fault has draws of its own, so that the others stay the same without it.
        let rng = self.rng.fork();
        let number = self.faults;
        self.faults += 1;
        if !self.reduction.includes(number) {
            return;
        }
        let others = std::mem::replace(&mut self.rng, rng);
        self.strike_now(number, fault);
        self.rng = others;
    }

    fn strike_now(&mut self, number: u32, fault: Fault) {
        self.tell(fault, || format!("fault {number}: {fault:?}"));
        match fault {
            Fault::ServerEnd => self.end_server(),
            Fault::Stall => self.stall(),
            Fault::Pause => self.pause(),
            Fault::Crash => self.crash(),
            Fault::Invention => self.network.lock().invent_invalidation(),
        }
    }

    fn end_server(&mut self) {
        let server = self.rng.usize(..self.scale.servers);
        let outage = self.rng.pick(&[Outage::Refuses, Outage::Silent]);
        // A restart with keys and without a quarantine is another world: `nodes_are_durable`.
        let keeps_keys = self.rng.chance(300_000);
        let mut network = self.network.lock();
        if network.servers[server].outage.is_some() {
            return;
        }
        network.seen.note(if keeps_keys {
            Seen::ServerEndKeeping
        } else {
            Seen::ServerEnd
        });
        network.servers[server].stop(outage);
        if outage == Outage::Refuses {
            network.reset_all(server);
        }
        drop(network);
        let length = self.rng.around(self.max_ttl() / 2);
        self.push(length, Event::Start { server, keeps_keys });
    }

    fn stall(&mut self) {
        let length = self.rng.around(self.max_ttl() / 2);
        let until = self.at() + length;
        let (requests, answers) = self.rng.pick(&[(until, until), (until, 0), (0, until)]);
        let shape = self.rng.u8(..3);
        let (server, process) = (
            self.rng.usize(..self.scale.servers),
            self.rng.usize(..self.scale.processes),
        );
        self.network.lock().seen.note(Seen::Stall);
        for route in self.routes() {
            let is_hit = match shape {
                0 => route.server == server,
                1 => route.process == process && self.rng.chance(700_000),
                _ => self.rng.chance(200_000),
            };
            if is_hit {
                self.network.lock().stall(route, requests, answers);
            }
        }
    }

    fn routes(&self) -> Vec<Route> {
        let of = |process| (0..self.scale.servers).map(move |server| Route { process, server });
        (0..self.scale.processes).flat_map(of).collect()
    }

    fn pause(&mut self) {
        let index = self.rng.usize(..self.scale.processes);
        let length = self.rng.around(self.max_ttl()).min(30 * SECOND);
        if let Some(process) = &mut self.processes[index]
            && !process.stands_still
        {
            process.stands_still = true;
            let life = process.host.life;
            self.network.lock().seen.note(Seen::Pause);
            self.push(
                length,
                Event::Resume {
                    process: index,
                    life,
                },
            );
        }
    }

    fn crash(&mut self) {
        let index = self.rng.usize(..self.scale.processes);
        let length = self.rng.around(self.max_ttl() / 2);
        if self.processes[index].is_some() {
            self.end_process(index);
            self.network.lock().seen.note(Seen::Crash);
            self.push(length, Event::Reboot { process: index });
        }
    }
}
