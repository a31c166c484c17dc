//! The events of a world: requests that arrive, what reaches clients, what they do, and faults.

use std::time::Duration;

use redlock_core::{FencingToken, Sighting, Ttl};

use crate::{
    lane::Purpose,
    master::{Request, Vote},
    owner::{Reign, Word},
};

#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// A request reaches a master.
    Arrive(Arrival),
    /// Something reaches a client, unless it has crashed since.
    Client {
        client: usize,
        life: u32,
        event: ClientEvent,
    },
    Resume {
        client: usize,
        life: u32,
    },
    Reboot {
        client: usize,
    },
    Restart {
        master: usize,
    },
    /// A member of a node's authority hears of an owner.
    Turn {
        node: usize,
        member: usize,
        reign: Reign,
    },
    /// An old owner is told that it is a replica.
    Demote {
        node: usize,
        server: usize,
    },
    Fault(Fault),
    Sweep,
    Calm,
    Inspect,
    Probe,
    End,
}

/// A request that reaches a master.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) client: usize,
    pub(crate) master: usize,
    pub(crate) server: usize,
    pub(crate) epoch: u32,
    pub(crate) flight: u64,
    pub(crate) sent: u64,
    pub(crate) request: Request,
    pub(crate) purpose: Purpose,
}

/// What reaches a client.
#[derive(Clone, Copy)]
pub(crate) enum ClientEvent {
    /// Starts a lease, of a given key if it is a probe.
    Begin {
        key: Option<usize>,
    },
    /// The lease's timer fires.
    Wake,
    /// A request leaves after the pause that held it up.
    Send {
        master: usize,
        request: Request,
        purpose: Purpose,
    },
    Answer(Answer),
    /// Perhaps a request was not answered in time.
    Late {
        master: usize,
        epoch: u32,
    },
    Broken {
        master: usize,
        epoch: u32,
    },
    Connect {
        master: usize,
    },
    Connected {
        master: usize,
        incarnation: u32,
        sighting: Sighting,
        named: Option<Named>,
    },
    /// Asks the members of a node's authority.
    Poll {
        node: usize,
    },
    /// A member of a node's authority answers.
    Word {
        node: usize,
        word: Word,
    },
    DeliverOwed {
        master: usize,
    },
    /// The client does something with the lease of this number.
    Act {
        lease: usize,
        act: Act,
    },
    /// The run ends: whatever there is, is released.
    Retire,
}

/// The owner that an authority has named, and the age of its marker.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub(crate) reign: Reign,
    pub(crate) marker: Duration,
}

/// What a master answers to a request.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) arrival: Arrival,
    pub(crate) vote: Vote,
}

/// Something a client does with its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Extends on demand, for this ttl.
    Extend(Ttl),
    /// Writes to the resource with the fencing token, without asking first whether it still may.
    Write {
        key: usize,
        fence: FencingToken,
    },
    Release,
    /// Gives an attempt up half-way.
    Cancel,
    /// The driver ends.
    Abandon,
}

/// Faults that come by themselves, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    MasterCrash,
    /// All masters restart, one after the other or all at once.
    FleetRestart,
    Cut,
    Pause,
    ClientCrash,
    Promotion,
    Failover,
    Authority,
    ClockStep,
    Flush,
}
