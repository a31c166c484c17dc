//! The kinds of faults.

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
