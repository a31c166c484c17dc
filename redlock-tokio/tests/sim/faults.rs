//! What goes wrong with machines and routes, and how often.

mod foreign;
mod losses;
mod processes;
mod promotions;
mod routes;
mod servers;

use crate::{
    clock::MILLI,
    events::Event,
    fault::{Connections, Fault},
    seen::Seen,
    world::World,
};

impl World {
    pub(crate) fn plan_faults(&mut self) {
        for fault in self.configuration.faults.iter().copied().flatten() {
            self.plan(*fault);
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
            Fault::ServerEnd => self.end_some_server(),
            Fault::TornRestart => self.tear_some_server(),
            Fault::FleetRestart => self.restart_fleet(),
            Fault::ServerPause => self.pause_server(),
            Fault::SlowServer => self.slow_down_server(),
            Fault::Refusal => self.refuse(),
            Fault::Reticence => self.withhold(),
            Fault::Promotion => self.promote_some(Connections::End),
            Fault::TwoMasters => self.promote_some(Connections::GoOn),
            Fault::Demotion => self.demote(Connections::End),
            Fault::UnseenDemotion => self.demote(Connections::GoOn),
            Fault::Eviction => self.evict(),
            Fault::Flush => self.flush(),
            Fault::ClockStep => self.step_clocks(),
            Fault::ClockSetBack => self.set_clock_back(),
            Fault::Stall => self.stall(),
            Fault::Silence => self.silence(),
            Fault::ForeignLock => self.lock_as_foreign_client(),
            Fault::ForeignWrite => self.write_as_foreign_client(),
            Fault::Pause => self.pause_some(),
            Fault::Stutter => self.stutter(),
            Fault::Suspension => self.suspend(),
            Fault::Crash => self.crash(),
            Fault::RuntimeDrop => self.drop_runtime(),
            Fault::Invention => self.network.lock().invent_invalidation(),
            Fault::Failover => self.fail_over(),
            Fault::Flapping => self.flap(),
            Fault::Member => self.disturb_member(),
            Fault::Split => self.split(),
            Fault::SlotMove => self.move_slot(),
            Fault::WallClock => self.set_wall_clock(),
        }
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
