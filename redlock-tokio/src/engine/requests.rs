//! All requests of a client as plain data behind one mutex: what they want, hold and wait for, and when something is due.
//!
//! The engine reads no clock and runs no task. Its callers tell it the time. When the mutex is free, they wake tasks, tell observers
//! and write the log for it. So no code of the user runs under the mutex.

mod client;
mod description;
mod driving;
mod extensions;
mod handle;
mod handover;
mod held_lease;
mod holders;
mod in_line;
mod inputs;
mod link;
mod local;
mod observed;
mod outputs;
mod permits;
mod placed;
mod read_write;
mod request;
mod terms;
mod ticket;
mod transfer;
mod waiting;
mod watched_round;

use std::{collections::VecDeque, mem, sync::Arc};

use redlock_core::{NodeId, NodeSet, Timestamp};
use slab::Slab;

pub(crate) use self::{
    client::Client,
    extensions::ExtensionOutcome,
    handle::Handle,
    held_lease::{Claimant, HeldLease},
    link::{Link, News},
    local::RequestEnd,
    terms::{LeaseRequest, Terms},
    transfer::adopt,
    waiting::begin,
};
pub use self::{
    description::{LocalHold, LocalLock},
    ticket::LockTicket,
};
use self::{driving::Effect, outputs::Outputs, request::Request};
use crate::{
    Key,
    engine::{
        lane::{LaneEnded, LineAsker, Outbox, ReplyTo},
        queue::{Arrival, Queue},
        slot_table::SlotTable,
        timers::Deadlines,
    },
    node::{Command, LineAction, LineRequest},
    observer::Event,
    random::Random,
};

/// Room for this many requests is kept when all have ended.
const MANY: usize = 1024;

/// The requests of one client.
pub(crate) struct Engine {
    /// Each is taken out while it changes.
    requests: Slab<Option<Box<Request>>>,
    /// How many requests there were.
    arrivals: u64,
    /// The requests within this process, by key.
    pub(crate) queue: Queue<RequestId>,
    /// The slots of semaphores that the process uses.
    slots: SlotTable,
    pub(crate) deadlines: Deadlines,
    /// What lanes are to send, by the id of the node.
    pub(crate) outboxes: Box<[Outbox]>,
    to_do: VecDeque<Effect>,
    out: Outputs,
    /// How often a request has begun to wait in lines.
    waits: u32,
    /// What observers have not been told yet.
    events: Vec<Event>,
    /// A task tells observers. It also takes the events that come meanwhile, so that they keep their order.
    is_telling: bool,
    /// Keeps the client while there are requests: a lock may be kept without a handle.
    client: Option<Arc<Client>>,
}

/// A request of one client. Another one has the same only after four thousand million others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId {
    /// The lower half of its arrival.
    number: u32,
    /// Where the request is, for as long as it is there.
    place: u32,
}

impl RequestId {
    /// No request.
    const NONE: Self = Self {
        number: u32::MAX,
        place: u32::MAX,
    };
}

/// The client, and the time of a change.
#[derive(Clone, Copy)]
struct Cx<'a> {
    client: &'a Arc<Client>,
    now: Timestamp,
}

impl Engine {
    /// Creates an engine for these nodes, in which at most `max_waiting` requests wait.
    pub(crate) fn new(max_waiting: usize, nodes: NodeSet, random: &Random) -> Self {
        Self {
            outboxes: nodes.iter().map(Outbox::new).collect(),
            requests: Slab::new(),
            arrivals: 0,
            queue: Queue::new(max_waiting, random),
            slots: SlotTable::new(random),
            deadlines: Deadlines::new(),
            to_do: VecDeque::new(),
            out: Outputs::default(),
            waits: 0,
            events: Vec::new(),
            is_telling: false,
            client: None,
        }
    }

    /// Makes a place for a request. The request is to be [put there](Self::put_back).
    fn insert(
        &mut self,
        cx: Cx<'_>,
        request: impl FnOnce(RequestId, Arrival) -> Request,
    ) -> Box<Request> {
        self.client.get_or_insert_with(|| Arc::clone(cx.client));
        let arrival = Arrival::new(self.arrivals);
        self.arrivals += 1;
        let id = RequestId {
            number: arrival.number() as u32,
            place: self.requests.insert(None) as u32,
        };
        Box::new(request(id, arrival))
    }

    /// Returns a request, unless it is gone or changes now.
    fn get(&self, id: RequestId) -> Option<&Request> {
        let request = self.requests.get(id.place as usize)?.as_deref();
        request.filter(|it| it.id == id)
    }

    fn get_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        let request = self.requests.get_mut(id.place as usize)?.as_deref_mut();
        request.filter(|it| it.id == id)
    }

    /// Takes a request out, to change it together with others.
    fn take(&mut self, id: RequestId) -> Option<Box<Request>> {
        let place = self.requests.get_mut(id.place as usize)?;
        place.take_if(|it| it.id == id)
    }

    /// Puts a request back, unless nothing will happen to it any more.
    fn put_back(&mut self, mut request: Box<Request>) {
        let place = request.id.place as usize;
        if !request.is_forgotten() {
            self.requests[place] = Some(request);
            return;
        }
        self.requests.remove(place);
        self.set_deadline(&mut request, None);
        self.out.forgotten.push(request);
        if self.requests.is_empty() {
            if self.requests.capacity() > MANY {
                // A peak is over.
                self.requests = Slab::new();
            }
            self.out.client = self.client.take();
        }
    }

    /// Ends a handle of a request.
    fn end_handle(&mut self, id: RequestId) {
        if let Some(mut request) = self.take(id) {
            request.handles -= 1;
            self.put_back(request);
        }
    }

    /// Has a lane send a command, once the engine is free.
    fn send(&mut self, node: NodeId, command: Command, to: ReplyTo) -> Result<(), LaneEnded> {
        self.outboxes[node.index()].send(command, to)?;
        self.out.lanes.insert(node);
        Ok(())
    }

    /// Likewise, a request about the line of a key.
    fn ask_line(
        &mut self,
        cx: Cx<'_>,
        node: NodeId,
        (key, of_several): (&Key, bool),
        action: LineAction,
        asker: LineAsker,
    ) {
        let request = LineRequest {
            key: key.clone(),
            of_several,
            action,
            client_name: cx.client.client_name.shared(),
        };
        self.outboxes[node.index()].send_to_line((request, asker));
        self.out.lanes.insert(node);
    }

    /// Moves the deadline of a request.
    fn set_deadline(&mut self, request: &mut Request, to: Option<Timestamp>) {
        let from = mem::replace(&mut request.due, to);
        self.out.wakes_timers |= self.deadlines.reschedule(request.id, from, to);
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter_map(|(_, it)| it.as_deref())
    }

    /// Returns all requests, in order of arrival.
    fn all(&self) -> Vec<RequestId> {
        let mut all: Vec<_> = self.requests().map(|it| (it.arrival, it.id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}
