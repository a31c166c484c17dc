//! The events of a world, in the order of true time.

use std::collections::BTreeMap;

use redlock_tokio::{Key, node::Command};

use crate::{
    authority::Step,
    fault::{Connections, Fault},
    foreign,
    message::{Arrival, ConnectionId, Response, Unanswered, Word},
    server::Disk,
};

/// Something that happens at a moment of true time.
pub(crate) enum Event {
    /// A request reaches its server.
    Arrive(Arrival),
    /// An answer reaches a process.
    Answer {
        connection: ConnectionId,
        number: u64,
        response: Response,
    },
    /// Word that a key is gone, or that any key may be, reaches a process.
    Invalidate {
        connection: ConnectionId,
        word: Word,
    },
    /// A process hears that a connection is broken.
    Break { connection: ConnectionId },
    /// A key that somebody asked for expires, unless it was extended.
    Expire { server: usize, key: Key },
    /// The mark of a writer reaches a server late, or once more.
    Mark { server: usize, command: Command },
    /// A connection should have been given up by now.
    Unanswered(Unanswered),
    /// A foreign client reaches a server.
    Foreign(foreign::Step),
    /// Something happens to an authority.
    Authority(Step),
    /// A fault comes.
    Fault(Fault),
    /// A server comes up again.
    Start { server: usize, disk: Disk },
    /// The clock of a server steps forward.
    StepClock { server: usize, by: u64 },
    /// A server ends for so long, as its turn comes in a rolling restart.
    Restart { server: usize, length: u64 },
    /// A server no longer refuses anything, and says again what it is.
    Recover { server: usize },
    /// A replica becomes a master again.
    Reinstate {
        server: usize,
        connections: Connections,
    },
    /// A server that was replaced loses its last connections.
    Depose { server: usize },
    /// A process stands still for so long.
    Pause {
        process: usize,
        life: u32,
        length: u64,
    },
    /// A process goes on after it stood still.
    Resume { process: usize, life: u32 },
    /// A process starts again.
    Reboot { process: usize },
    /// A process has shut down, and nothing of it may be left.
    Ended { process: usize, life: u32 },
    /// The faults end.
    Calm,
    /// All processes are told to end.
    ShutDown,
    /// The world looks whether all processes have ended.
    Tick,
    /// The run ends.
    End,
}

/// The events to come.
#[derive(Default)]
pub(crate) struct Queue {
    events: BTreeMap<Due, Event>,
    pushed: u64,
}

/// When an event is due. Events of one moment come in the order in which they were planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    number: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        let number = self.pushed;
        self.events.insert(Due { at, number }, event);
    }

    /// Returns when the next event is due.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.events.keys().next().map(|due| due.at)
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.events.pop_first().map(|(_, event)| event)
    }
}
