//! What goes wrong with machines and routes, and how often.

mod foreign;
mod losses;
mod processes;
mod promotions;
mod routes;
mod servers;

use crate::{
    clock::{MILLI, SECOND},
    fault::{Connections, Fault},
    seen::Seen,
    world::World,
};

/// How often a fault comes, and what it does.
struct Rule {
    /// The mean time between two of a kind in seconds, at severity 1.
    every: u64,
    strike: fn(&mut World),
}

impl Fault {
    fn rule(self) -> Rule {
        let every = |every, strike| Rule { every, strike };
        match self {
            Self::ServerEnd => every(30, World::end_some_server),
            Self::TornRestart => every(30, World::tear_some_server),
            Self::FleetRestart => every(60, World::restart_fleet),
            Self::ServerPause => every(20, World::pause_server),
            Self::SlowServer => every(20, World::slow_down_server),
            Self::Refusal => every(20, World::refuse),
            Self::Reticence => every(30, World::withhold),
            Self::Promotion => every(30, |it| it.promote_some(Connections::End)),
            Self::TwoMasters => every(20, |it| it.promote_some(Connections::GoOn)),
            Self::Demotion => every(30, |it| it.demote(Connections::End)),
            Self::UnseenDemotion => every(20, |it| it.demote(Connections::GoOn)),
            Self::Eviction => every(20, World::evict),
            Self::Flush => every(20, World::flush),
            Self::ClockStep => every(20, World::step_clocks),
            Self::ClockSetBack => every(20, World::set_clock_back),
            Self::Stall => every(10, World::stall),
            Self::Silence => every(10, World::silence),
            Self::ForeignLock => every(10, World::lock_as_foreign_client),
            Self::ForeignWrite => every(5, World::write_as_foreign_client),
            Self::Pause => every(10, World::pause_some),
            Self::Stutter => every(20, World::stutter),
            Self::Suspension => every(10, World::suspend),
            Self::Crash => every(30, World::crash),
            Self::RuntimeDrop => every(30, World::drop_runtime),
            Self::Invention => every(5, |it| it.network.lock().invent_invalidation()),
            Self::Failover => every(20, World::fail_over),
            Self::Flapping => every(20, World::flap),
            Self::Member => every(5, World::disturb_member),
            Self::Split => every(20, World::split),
            Self::SlotMove => every(20, World::move_slot),
            Self::WallClock => every(5, World::set_wall_clock),
        }
    }
}

impl World {
    pub(crate) fn plan_faults(&mut self) {
        for fault in self.configuration.faults.iter().copied().flatten() {
            self.plan(*fault);
        }
    }

    fn plan(&mut self, fault: Fault) {
        let mean = fault.rule().every * SECOND / u64::from(self.configuration.severity);
        let delay = self.rng.around(mean) + MILLI;
        self.push(delay, move |world| world.strike(fault));
    }

    fn strike(&mut self, fault: Fault) {
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
        self.tell(fault, || format!("fault {number}: {fault:?}"));
        (fault.rule().strike)(self);
        self.rng = others;
    }

    /// Returns the machine that some address leads to.
    fn some_server(&mut self) -> usize {
        let address = self.rng.usize(..self.scale.servers);
        self.network.lock().machine(address)
    }

    /// Draws how far a wall clock is ahead of the slowest.
    pub(crate) fn draw_wall_clock(&mut self) -> u64 {
        let fencing = self.configuration.fencing;
        let most = fencing.wall_clocks_differ_by(self.max_ttl());
        self.rng.u64(..most)
    }

    fn set_wall_clock(&mut self) {
        let index = self.rng.usize(..self.scale.processes);
        let ahead = self.draw_wall_clock();
        if let Some(process) = &self.processes[index] {
            process.host.set_wall_clock(ahead);
            self.network.lock().seen.note(Seen::WallClockSet);
        }
    }
}
