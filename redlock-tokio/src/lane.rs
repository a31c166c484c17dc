//! One actor per node: a queue in front, one long-lived session behind.
//!
//! A lane owns every request it is given. It sends what it finds in its queue as one batch, keeps a
//! few batches in flight, answers for a node that stays silent, reconnects, and remembers the
//! releases that it owes. Callers that go away cancel nothing, and no caller ever waits for a
//! connection.

mod backoff;
mod batch;
mod debts;
mod flights;
mod timer;

use std::{
    ops::ControlFlow,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlock_core::{NodeId, RoundId};
use tokio::sync::{mpsc, oneshot};

use self::{
    backoff::Backoff,
    batch::{Batch, Purpose},
    debts::Debts,
    flights::{Flights, Landed},
    timer::Timer,
};
use crate::{
    Clock, NodeError,
    lease_cell::LeaseCell,
    node::{Command, Node, Session},
};

/// The most commands that travel in one batch. It bounds how long others wait behind a batch, and
/// is far beyond what forms by itself between two round trips.
const MAX_BATCH: usize = 512;

/// How many batches may be in flight at once. While they are, the next batch grows in the queue:
/// one alone would cost every other request an extra wait of a round trip, many would be small.
const MAX_IN_FLIGHT: usize = 2;

/// How long a node may be silent before its connection is given up and another is opened. A node
/// that was only stopped for a moment is better served on the old one.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// Where the answer to a command goes.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) cell: Arc<LeaseCell>,
    pub(crate) round: RoundId,
}

/// The caller's end of a lane.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    address: Arc<str>,
    inbox: mpsc::UnboundedSender<Message>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    /// Releases that wait for the node to come back.
    owed: AtomicUsize,
    /// Releases that were never delivered: their keys have expired by themselves.
    abandoned: AtomicUsize,
}

#[derive(Debug)]
enum Message {
    Request(Command, Origin),
    /// Answered when nothing is in flight or owed any more.
    Drain(oneshot::Sender<()>),
}

/// The lane's runtime is gone, and the command with it.
pub(crate) struct LaneClosed;

impl LaneHandle {
    pub(crate) fn send(&self, command: Command, origin: Origin) -> Result<(), LaneClosed> {
        self.inbox
            .send(Message::Request(command, origin))
            .map_err(|_| LaneClosed)
    }

    /// Waits until everything sent so far was answered and every owed release was delivered or
    /// has become pointless.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.inbox.send(Message::Drain(done)).is_ok() {
            // An error means that the lane has ended, and then nothing is left to wait for.
            let _ = drained.await;
        }
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Returns how many releases were not delivered and never will be, or not yet.
    pub(crate) fn undelivered(&self) -> usize {
        let Counters { owed, abandoned } = &*self.counters;
        owed.load(Ordering::Relaxed) + abandoned.load(Ordering::Relaxed)
    }
}

/// The actor.
pub(crate) struct Lane {
    id: NodeId,
    node: Arc<dyn Node>,
    clock: Clock,
    limits: LaneLimits,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// Nobody can send any more.
    closed: bool,
    debts: Debts,
    drains: Vec<oneshot::Sender<()>>,
}

/// How long a lane waits for its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    pub(crate) answer: Duration,
    pub(crate) connect: Duration,
}

impl Lane {
    pub(crate) fn new(
        id: NodeId,
        node: Arc<dyn Node>,
        clock: Clock,
        limits: LaneLimits,
    ) -> (LaneHandle, Self) {
        let (sender, inbox) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let handle = LaneHandle {
            address: node.address().into(),
            inbox: sender,
            counters: Arc::clone(&counters),
        };
        let lane = Self {
            id,
            node,
            clock,
            limits,
            inbox,
            closed: false,
            debts: Debts::new(counters),
            drains: Vec::new(),
        };
        (handle, lane)
    }

    /// Runs until all handles are gone and nothing is owed. Tells `connected` how the first
    /// attempt to connect went.
    pub(crate) async fn run(mut self, connected: oneshot::Sender<Result<(), NodeError>>) {
        let mut connected = Some(connected);
        while let Some(session) = self.connect(&mut connected).await {
            self.serve(session).await;
        }
    }

    /// Connects, however often it takes, and meanwhile turns requests away. Returns `None` when
    /// there is no need for a connection any more.
    async fn connect(
        &mut self,
        connected: &mut Option<oneshot::Sender<Result<(), NodeError>>>,
    ) -> Option<Box<dyn Session>> {
        let mut backoff = Backoff::new();
        let mut cause = NodeError::Unreachable("connecting".into());
        loop {
            let node = Arc::clone(&self.node);
            let attempt = tokio::time::timeout(self.limits.connect, node.connect());
            let outcome = match self.turn_away_during(attempt, &cause).await? {
                Ok(outcome) => outcome,
                Err(_) => Err(NodeError::Unreachable(
                    format!("no connection within {:?}", self.limits.connect).into(),
                )),
            };
            if let Some(connected) = connected.take() {
                // An error means that nobody wants to know.
                let _ = connected.send(outcome.as_ref().map(drop).map_err(Clone::clone));
            }
            match outcome {
                Ok(session) => {
                    tracing::debug!(node = self.node.address(), "connected");
                    return Some(session);
                }
                Err(error) => {
                    if cause != error {
                        tracing::warn!(node = self.node.address(), %error, "cannot connect");
                    }
                    cause = error;
                }
            }
            self.turn_away_during(tokio::time::sleep(backoff.next()), &cause)
                .await?;
        }
    }

    /// Waits for something, answering every request at once: the node cannot be reached.
    async fn turn_away_during<T>(
        &mut self,
        until: impl Future<Output = T>,
        cause: &NodeError,
    ) -> Option<T> {
        let mut until = pin!(until);
        loop {
            self.debts.forget_expired(self.clock.now());
            if self.has_settled() {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut until => return Some(done),
                message = self.inbox.recv(), if !self.closed => match message {
                    Some(Message::Request(command, origin)) => {
                        self.turn_away(command, origin, cause.clone());
                    }
                    Some(Message::Drain(done)) => self.drains.push(done),
                    None => self.closed = true,
                },
            }
        }
    }

    /// Keeps the session busy until it breaks or is not needed any more.
    async fn serve(&mut self, mut session: Box<dyn Session>) {
        let mut flights = Flights::new(self.limits.answer);
        let mut messages = Vec::new();
        let mut timer = Timer::new();
        self.debts.become_due();
        loop {
            self.debts.forget_expired(self.clock.now());
            let silent = flights.is_silent();
            let has_room = flights.len() < MAX_IN_FLIGHT;
            let may_send = has_room && !silent;
            if may_send {
                flights.send(&mut *session, self.debts.take_due(MAX_BATCH));
            }
            if flights.is_empty() && self.has_settled() {
                return;
            }
            timer.arm_for(flights.next_timeout());
            timer.arm_for(self.debts.next_try().filter(|_| may_send));
            tokio::select! {
                biased;
                landed = flights.land(), if !flights.is_empty() => {
                    if self.deliver(landed).is_break() {
                        break;
                    }
                }
                () = timer.fired() => {
                    self.time_out(&mut flights);
                    if flights.are_silent_for(SILENCE_LIMIT) {
                        tracing::warn!(node = self.node.address(), "silent, reconnecting");
                        break;
                    }
                }
                // A silent node's requests are turned away, so they need no room.
                count = self.inbox.recv_many(&mut messages, MAX_BATCH),
                    if !self.closed && (has_room || silent) =>
                {
                    self.closed = count == 0;
                    let batch = self.gather(&mut messages, silent);
                    flights.send(&mut *session, batch);
                }
            }
        }
        for batch in flights.into_batches() {
            let broken = NodeError::Disconnected("the connection was given up".into());
            let _ = self.deliver(Landed::broken(batch, broken));
        }
    }

    /// Sorts a run of messages into a batch to send. While the node is silent nothing is sent:
    /// the requests are answered at once, and the releases are owed.
    fn gather(&mut self, messages: &mut Vec<Message>, silent: bool) -> Batch {
        let mut batch = Batch::with_capacity(messages.len());
        for message in messages.drain(..) {
            match message {
                Message::Request(command, origin) if silent => {
                    self.turn_away(command, origin, NodeError::Silent);
                }
                Message::Request(command, origin) => batch.push(command, Purpose::Request(origin)),
                Message::Drain(done) => self.drains.push(done),
            }
        }
        batch
    }

    /// Answers for batches that have been in flight for too long. They stay in flight: the node
    /// may still carry them out, and what it says in the end shows that it is back.
    fn time_out(&self, flights: &mut Flights) {
        let now = self.clock.now();
        flights.time_out(|batch| {
            for origin in batch.origins() {
                let late = Err(NodeError::TimedOut(self.limits.answer));
                origin.cell.handle_answer(now, origin.round, self.id, late);
            }
        });
    }

    /// Hands a batch's answers to their leases. Breaks if the session is broken.
    fn deliver(&mut self, landed: Landed) -> ControlFlow<()> {
        let now = self.clock.now();
        let flow = if landed.answers.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        };
        if flow.is_continue() && landed.was_late {
            // The node is back: it gets the releases it missed.
            self.debts.become_due();
        }
        let mut answers = landed.answers.map(Vec::into_iter);
        for (command, purpose) in landed.batch {
            let answer = match &mut answers {
                Ok(answers) => answers.next().unwrap_or_else(|| {
                    Err(NodeError::Unexpected("fewer answers than commands".into()))
                }),
                Err(error) => Err(error.clone()),
            };
            if answer.is_err() {
                self.debts.owe(now, command, &purpose);
            }
            if let Purpose::Request(origin) = purpose {
                origin
                    .cell
                    .handle_answer(now, origin.round, self.id, answer);
            }
        }
        flow
    }

    fn turn_away(&mut self, command: Command, origin: Origin, cause: NodeError) {
        let now = self.clock.now();
        let purpose = Purpose::Request(origin);
        self.debts.owe(now, command, &purpose);
        if let Purpose::Request(origin) = purpose {
            origin
                .cell
                .handle_answer(now, origin.round, self.id, Err(cause));
        }
    }

    /// Tells those who wait for it that nothing is owed. Returns whether the lane can end.
    fn has_settled(&mut self) -> bool {
        if !self.debts.is_empty() {
            return false;
        }
        for done in self.drains.drain(..) {
            // An error means that nobody waits any more.
            let _ = done.send(());
        }
        self.closed
    }
}
