//! What goes wrong with machines and routes, and how often.

mod foreign;
mod losses;
mod processes;
mod promotions;
mod routes;
mod servers;

use crate::{
    clock::{MILLI, SECOND},
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
    /// The clock of a server is set back: its keys live for longer.
    ClockSetBack,
    /// Routes stop in one direction or in both.
    Stall,
    /// Connections lose all requests or all answers from now on, and stay open.
    Silence,
    /// A client that is not ours takes a key where it is free, and gives it back.
    ForeignLock,
    /// A client that is not ours deletes or overwrites a key of a lock that can spare it.
    ForeignWrite,
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
