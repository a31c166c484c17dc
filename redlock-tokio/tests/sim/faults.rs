//! What goes wrong with machines and routes, and how often.

mod losses;
mod processes;
mod promotions;
mod routes;
mod servers;

use crate::{
    clock::{MILLI, SECOND},
    events::Event,
    host::Host,
    seen::Seen,
    world::World,
};

/// A fault that comes again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A server's process ends, and starts again later.
    ServerEnd,
    /// The same, and what it stored in its last second is lost.
    TornRestart,
    /// All servers restart, at once or one after the other.
    FleetRestart,
    /// A server carries out nothing for a while, and then everything.
    ServerPause,
    /// A server answers late for a while.
    SlowServer,
    /// A server refuses some commands for a while.
    Refusal,
    /// A server does not say what it is for a while, or not all of it.
    Reticence,
    /// A replica that lags behind takes the place of a master.
    Promotion,
    /// A master becomes a replica without its keys, and later a master again.
    Demotion,
    /// The same for a moment, and the connections go on.
    UnseenDemotion,
    /// A replica is promoted, and the master before goes on.
    TwoMasters,
    /// Servers delete keys that have not expired.
    Eviction,
    /// Servers delete everything.
    Flush,
    /// Clocks of servers step forward.
    ClockStep,
    /// Routes stop in one direction or in both.
    Stall,
    /// A process stands still.
    Pause,
    /// A process stands still for many short times.
    Stutter,
    /// A process stands still, and its clock with it.
    Suspension,
    /// A process ends at once.
    Crash,
    /// A process drops its runtime, and does not shut down before.
    RuntimeDrop,
    /// A process is told that keys may be free.
    Invention,
    /// A replica that lags takes the place of a master that an authority names.
    Failover,
    /// Several failovers follow each other within a moment.
    Flapping,
    /// A member of an authority restarts, lags, or loses its state.
    Member,
    /// A member of an authority is cut off from the others.
    Split,
    /// A slot of a cluster moves.
    SlotMove,
    /// Somebody sets the wall clock of a process.
    WallClock,
}

/// What becomes of the connections to a server whose role changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Connections {
    End,
    GoOn,
}

impl Fault {
    /// Returns the mean time between two of a kind, at severity 1.
    fn mean(self) -> u64 {
        match self {
            Self::FleetRestart => 60 * SECOND,
            Self::ServerEnd
            | Self::TornRestart
            | Self::Reticence
            | Self::Promotion
            | Self::Demotion
            | Self::Crash
            | Self::RuntimeDrop => 30 * SECOND,
            Self::ServerPause
            | Self::SlowServer
            | Self::Refusal
            | Self::UnseenDemotion
            | Self::TwoMasters
            | Self::Eviction
            | Self::Flush
            | Self::ClockStep
            | Self::Stutter => 20 * SECOND,
            Self::Stall | Self::Pause | Self::Suspension => 10 * SECOND,
            Self::Failover | Self::Flapping | Self::Split | Self::SlotMove => 20 * SECOND,
            Self::Invention | Self::Member | Self::WallClock => 5 * SECOND,
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
            Fault::Stall => self.stall(),
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

    fn set_wall_clock(&mut self) {
        let index = self.rng.usize(..self.scale.processes);
        let ahead = self.rng.u64(..Host::WALL_CLOCKS_DIFFER_BY);
        if let Some(process) = &self.processes[index] {
            process.host.set_wall_clock(ahead);
            self.network.lock().seen.note(Seen::WallClockSet);
        }
    }
}
