//! One actor per node: a queue in front, one long-lived session behind.
//!
//! A lane owns every request it is given. It sends what it finds in its queue as one batch, keeps a
//! few batches in flight, answers for a node that stays silent, reconnects, and remembers the
//! releases that it owes. Callers that go away cancel nothing, and no caller ever waits for a
//! connection.

mod backoff;
mod batch;
mod counters;
mod handle;
mod in_flight;
mod inspection;
mod limits;
mod message;
mod owed_releases;
mod release_terms;
mod requester;
mod set_requests;
mod status_board;
mod timer;
pub(crate) mod vetting;
mod yield_to_ready;

use std::{ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use redlock_core::{Eligibility, NodeId, Operation, Timestamp, Withdrawal};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use self::{
    backoff::Backoff,
    batch::{Batch, Purpose},
    counters::Counters,
    in_flight::{Completed, InFlight},
    inspection::{Inspected, Inspection},
    limits::{LONGEST_SLEEP, MAX_BATCH, MAX_QUEUED, SILENCE_LIMIT},
    message::Message,
    owed_releases::OwedReleases,
    status_board::StatusBoard,
    timer::Timer,
    vetting::{Occasion, Vetting, Visit},
    yield_to_ready::yield_to_ready,
};
pub(crate) use self::{
    handle::LaneHandle,
    limits::LaneLimits,
    requester::{Origin, Requester},
    set_requests::SetRequests,
};
use crate::{
    Clock, NodeError,
    node::{Command, FreedNotifier, Node, Server, Session},
};

/// The actor.
pub(crate) struct Lane<R: Requester> {
    id: NodeId,
    node: Arc<dyn Node>,
    clock: Clock,
    limits: LaneLimits,
    vetting: Arc<Vetting>,
    /// Where the node tells that keys are gone.
    freed: FreedNotifier,
    withdraw: Withdraw,
    status: Arc<StatusBoard>,
    /// What the node's votes are worth.
    eligibility: Eligibility,
    /// Whether it had no vote when that was looked at last.
    is_quarantined: bool,
    inbox: mpsc::UnboundedReceiver<Message<R>>,
    /// What was taken from the inbox and is not on its way yet.
    gathered: Vec<Message<R>>,
    /// Nobody can send any more.
    closed: bool,
    owed_releases: OwedReleases<R>,
    drains: Vec<oneshot::Sender<()>>,
}

/// Where a lane tells that votes of its node count for nothing.
pub(crate) type Withdraw = Box<dyn Fn(Withdrawal) + Send>;

/// A session that was opened, and what was found out of its server.
struct Opened {
    session: Box<dyn Session>,
    asked_at: Timestamp,
    server: Server,
    refusal: Option<NodeError>,
    history_age: Option<Duration>,
}

impl<R: Requester> Lane<R> {
    pub(crate) fn new(
        id: NodeId,
        node: Arc<dyn Node>,
        clock: Clock,
        limits: LaneLimits,
        vetting: Arc<Vetting>,
        freed: FreedNotifier,
        withdraw: Withdraw,
    ) -> (LaneHandle<R>, Self) {
        let (sender, inbox) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let status = Arc::new(StatusBoard::new(connecting()));
        let handle = LaneHandle::new(
            node.address(),
            sender,
            Arc::clone(&counters),
            Arc::clone(&status),
        );
        let lane = Self {
            id,
            node,
            clock,
            limits,
            vetting,
            freed,
            withdraw,
            status,
            eligibility: Eligibility::ALWAYS,
            is_quarantined: false,
            inbox,
            gathered: Vec::new(),
            closed: false,
            owed_releases: OwedReleases::new(id, counters),
            drains: Vec::new(),
        };
        (handle, lane)
    }

    /// Runs until all handles are gone and nothing is owed. Tells `connected` how the first
    /// attempt to connect went.
    pub(crate) async fn run(mut self, connected: oneshot::Sender<Result<(), NodeError>>) {
        let mut connected = Some(connected);
        let mut backoff = Backoff::new();
        let mut cause = connecting();
        while let Some(session) = self.connect(&mut connected, &mut backoff, &cause).await {
            let since = Instant::now();
            match self.serve(session).await {
                Ok(()) => return,
                Err(error) => cause = error,
            }
            self.status.disconnected(not_connected(&cause));
            tracing::warn!(node = self.node.address(), error = %cause, "connection given up");
            if since.elapsed() >= SILENCE_LIMIT {
                backoff = Backoff::new();
            } else {
                // A node that only accepts connections to break them is no better than one that
                // refuses them.
                let pause = tokio::time::sleep(backoff.next());
                let cause = not_connected(&cause);
                if self.turn_away_during(pause, &cause).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Connects, however often it takes, and meanwhile turns requests away, at first because of
    /// `cause`. Returns `None` when there is no need for a connection any more.
    async fn connect(
        &mut self,
        connected: &mut Option<oneshot::Sender<Result<(), NodeError>>>,
        backoff: &mut Backoff,
        cause: &NodeError,
    ) -> Option<Box<dyn Session>> {
        let mut cause = not_connected(cause);
        loop {
            let attempt = tokio::time::timeout(self.limits.connect, self.open());
            let outcome = match self.turn_away_during(attempt, &cause).await? {
                Ok(outcome) => outcome.and_then(|opened| self.vet(opened)),
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
                    let node = self.node.address();
                    if cause == connecting() {
                        tracing::debug!(node, "connected");
                    } else {
                        tracing::info!(node, "connected again");
                    }
                    return Some(session);
                }
                Err(error) => {
                    if cause != error {
                        let node = self.node.address();
                        if error.is_refusal() {
                            tracing::warn!(node, %error, "has no vote until this is mended");
                        } else {
                            tracing::warn!(node, %error, "cannot connect");
                        }
                    }
                    self.status.disconnected(error.clone());
                    cause = error;
                }
            }
            self.turn_away_during(tokio::time::sleep(backoff.next()), &cause)
                .await?;
        }
    }

    /// Opens a session, and finds out of its server what must be known.
    fn open(&self) -> impl Future<Output = Result<Opened, NodeError>> + use<R> {
        let node = Arc::clone(&self.node);
        let (vetting, id) = (Arc::clone(&self.vetting), self.id);
        let asked_at = self.clock.now();
        async move {
            let mut session = node.connect().await?;
            let server = session.server();
            let refusal = session.refusal();
            let history_age = if refusal.is_none() && vetting.needs_history_age(id, &server) {
                match session.history_age().await {
                    Err(error @ NodeError::Refused { .. }) => {
                        tracing::warn!(
                            node = node.address(),
                            %error,
                            "cannot tell how long ago it was promoted, so it waits as if that were \
                             now: grant SET, GET and PTTL on the keys redlock:since:*"
                        );
                        None
                    }
                    age => age?,
                }
            } else {
                None
            };
            Ok(Opened {
                session,
                asked_at,
                server,
                refusal,
                history_age,
            })
        }
    }

    /// Lets the node in, if it may vote, now or later.
    fn vet(&mut self, opened: Opened) -> Result<Box<dyn Session>, NodeError> {
        let Opened {
            mut session,
            asked_at,
            server,
            refusal,
            history_age,
        } = opened;
        self.judge(&Visit {
            occasion: Occasion::Connection,
            asked_at,
            server: &server,
            refusal,
            history_age,
        })?;
        let now = self.clock.now();
        let remaining = self.eligibility.remaining(now);
        if !remaining.is_zero() {
            tracing::warn!(
                node = self.node.address(),
                ?remaining,
                "came up, or was promoted, too recently to vote: it may lack a lock"
            );
        }
        let info = match server {
            Server::Known(info) => Some(info),
            Server::None | Server::Withheld(_) => None,
        };
        self.status.connected(info, self.eligibility);
        session.watch(self.freed.clone());
        Ok(session)
    }

    /// Takes what a server has said of itself while it is connected to. Breaks if it may not vote, or
    /// does not answer.
    fn inspected(&mut self, inspected: Inspected) -> ControlFlow<NodeError> {
        let server = match inspected.server {
            Err(error) => return ControlFlow::Break(error),
            Ok(server) if server.may_tell_later() => return ControlFlow::Continue(()),
            Ok(server) => server,
        };
        let before = self.eligibility;
        let judged = self.judge(&Visit {
            occasion: Occasion::Inspection,
            asked_at: inspected.asked_at,
            server: &server,
            refusal: None,
            history_age: None,
        });
        if let Err(error) = judged {
            return ControlFlow::Break(error);
        }
        if self.eligibility != before {
            tracing::warn!(
                node = self.node.address(),
                remaining = ?self.eligibility.remaining(self.clock.now()),
                "was promoted or replaced while it was connected to, and may lack a lock: it has no \
                 vote, and its last ones are withdrawn"
            );
            self.status.answering(self.eligibility);
        }
        ControlFlow::Continue(())
    }

    /// Finds out what the node's votes are worth from now on, and tells it to whom it concerns.
    fn judge(&mut self, visit: &Visit<'_>) -> Result<(), NodeError> {
        let judgement = self.vetting.judge(self.id, self.clock.now(), visit);
        // First of all for the answers that come from now on.
        if let Some(withdrawal) = judgement.withdrawal {
            self.eligibility = withdrawal.eligibility;
        }
        let outcome = judgement.outcome.map(|it| self.eligibility = it);
        if let Some(withdrawal) = judgement.withdrawal {
            (self.withdraw)(withdrawal);
        }
        outcome
    }

    /// Waits for something, answering every request at once: the node cannot be reached.
    async fn turn_away_during<T>(
        &mut self,
        until: impl Future<Output = T>,
        cause: &NodeError,
    ) -> Option<T> {
        let mut until = pin!(until);
        loop {
            self.owed_releases.forget_expired(self.clock.now());
            if self.has_settled() {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut until => return Some(done),
                message = self.inbox.recv(), if !self.closed => match message {
                    Some(message) => {
                        self.gathered.push(message);
                        // Nothing is to be sent.
                        let _ = self.batch_up(Some(cause));
                    }
                    None => self.closed = true,
                },
            }
        }
    }

    /// Keeps the session busy until it is not needed any more, or is broken.
    async fn serve(&mut self, mut session: Box<dyn Session>) -> Result<(), NodeError> {
        let mut in_flight = InFlight::new(self.limits.answer, self.owed_releases.counters());
        let mut timer = Timer::new();
        let mut closed = session.closed();
        let server = session.server();
        let has_marker = self.vetting.needs_history_age(self.id, &server);
        let mut inspection = Inspection::new(self.clock.clone(), &server, has_marker);
        self.owed_releases.become_due();
        let broken = loop {
            self.owed_releases.forget_expired(self.clock.now());
            let silent = in_flight.is_silent();
            if !silent && in_flight.have_room() {
                in_flight.send(&mut *session, self.owed_releases.take_due(MAX_BATCH));
            }
            if in_flight.is_empty() && self.has_settled() {
                return Ok(());
            }
            let has_room = in_flight.have_room();
            // What cannot be sent is turned away, unless it is only a moment that it must wait.
            let refusal = if silent {
                Some(NodeError::Silent)
            } else if !has_room && self.inbox.len() > MAX_QUEUED {
                Some(NodeError::Overloaded)
            } else {
                None
            };
            timer.arm_for(in_flight.next_timeout());
            timer.arm_for(self.end_of_quarantine());
            timer.arm_for(
                self.owed_releases
                    .next_try()
                    .filter(|_| has_room && !silent),
            );
            tokio::select! {
                biased;
                completed = in_flight.next_completed(), if !in_flight.is_empty() => {
                    self.status.answered_in(completed.round_trip);
                    if silent && !in_flight.is_silent() {
                        self.status.answering(self.eligibility);
                    }
                    if let ControlFlow::Break(error) = self.deliver(completed) {
                        break error;
                    }
                }
                error = &mut closed => break error,
                inspected = inspection.next(&mut *session) => {
                    if let ControlFlow::Break(error) = self.inspected(inspected) {
                        break error;
                    }
                }
                () = timer.fired() => {
                    self.time_out(&mut in_flight);
                    if !silent && in_flight.is_silent() {
                        self.status.silent();
                    }
                    if in_flight.are_silent_for(SILENCE_LIMIT) {
                        break NodeError::TimedOut(SILENCE_LIMIT);
                    }
                }
                count = self.inbox.recv_many(&mut self.gathered, MAX_BATCH),
                    if !self.closed && (has_room || refusal.is_some()) =>
                {
                    self.closed = count == 0;
                    if refusal.is_none() {
                        self.top_up().await;
                    }
                    let batch = self.batch_up(refusal.as_ref());
                    in_flight.send(&mut *session, batch);
                }
            }
        };
        for batch in in_flight.into_batches() {
            // The session is given up already; this only tells those who wait for the batch.
            let _ = self.deliver(Completed::broken(batch, broken.clone()));
        }
        Err(broken)
    }

    /// Tells that a quarantine has ended, or returns when to look again.
    fn end_of_quarantine(&mut self) -> Option<Instant> {
        let remaining = self.eligibility.remaining(self.clock.now());
        let was_quarantined = self.is_quarantined;
        self.is_quarantined = !remaining.is_zero();
        if was_quarantined && !self.is_quarantined {
            tracing::info!(node = self.node.address(), "votes from now on");
        }
        self.is_quarantined
            .then(|| Instant::now() + remaining.min(LONGEST_SLEEP))
    }

    /// Lets the tasks that are ready to run add what they have: the first of them has woken the
    /// lane, which would otherwise leave with its request alone.
    async fn top_up(&mut self) {
        yield_to_ready().await;
        while self.gathered.len() < MAX_BATCH
            && let Ok(message) = self.inbox.try_recv()
        {
            self.gathered.push(message);
        }
    }

    /// Sorts what was gathered into a batch to send. With a refusal nothing is sent: the requests
    /// are answered at once, and the releases are owed.
    fn batch_up(&mut self, refusal: Option<&NodeError>) -> Batch<R> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let mut batch = Batch::with_capacity(gathered.len());
        for message in gathered.drain(..) {
            if message.is_release() {
                self.owed_releases.note_taken();
            }
            match (message, refusal) {
                (Message::Request(command, origin), Some(refusal)) => {
                    self.turn_away(command, origin, refusal.clone());
                }
                (Message::Request(command, origin), None) => {
                    if matches!(command.operation(), Operation::Acquire { .. }) {
                        origin.requester.set_requests().note_sent(self.id);
                    }
                    batch.push(command, Purpose::Request(origin));
                }
                (Message::Drain(done), _) => self.drains.push(done),
            }
        }
        self.gathered = gathered;
        batch
    }

    /// Answers for batches that have been in flight for too long. They stay in flight: the node
    /// may still carry them out, and what it says in the end shows that it is back.
    fn time_out(&self, in_flight: &mut InFlight<R>) {
        let now = self.clock.now();
        in_flight.time_out(|batch| {
            for origin in batch.origins() {
                let late = Err(NodeError::TimedOut(self.limits.answer));
                origin
                    .requester
                    .handle_answer(now, origin.round, self.id, late, self.eligibility);
            }
        });
    }

    /// Hands a batch's answers to their leases. Breaks if the session is broken.
    fn deliver(&mut self, completed: Completed<R>) -> ControlFlow<NodeError> {
        let now = self.clock.now();
        let flow = match &completed.answers {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error.clone()),
        };
        if flow.is_continue() && completed.was_late {
            // The node is back: it gets the releases it missed.
            self.owed_releases.become_due();
        }
        let mut answers = completed.answers.map(Vec::into_iter);
        let mut changed = None;
        for (command, purpose) in completed.batch {
            let answer = match &mut answers {
                Ok(answers) => answers.next().unwrap_or_else(|| {
                    Err(NodeError::Unexpected("fewer answers than commands".into()))
                }),
                Err(error) => Err(error.clone()),
            };
            if let Err(error) = &answer
                && error.is_change_of_role()
            {
                changed = Some(error.clone());
            }
            match command.operation() {
                Operation::Acquire { .. } if flow.is_break() => {
                    if let Purpose::Request(origin) = &purpose {
                        origin.requester.set_requests().note_unanswered(self.id);
                    }
                }
                Operation::Release { .. } => {
                    self.owed_releases.settle(now, command, &purpose, &answer);
                }
                _ => {}
            }
            if let Purpose::Request(origin) = purpose {
                let Origin { requester, round } = origin;
                requester.handle_answer(now, round, self.id, answer, self.eligibility);
            }
        }
        match changed {
            // Look again what it is.
            Some(error) if flow.is_continue() => ControlFlow::Break(error),
            _ => flow,
        }
    }

    fn turn_away(&mut self, command: Command, origin: Origin<R>, cause: NodeError) {
        let now = self.clock.now();
        let requester = origin.requester.clone();
        let round = origin.round;
        if matches!(command.operation(), Operation::Release { .. })
            && requester.set_requests().was_sent(self.id)
        {
            let answer = Err(cause.clone());
            let purpose = Purpose::Request(origin);
            self.owed_releases.settle(now, command, &purpose, &answer);
        }
        requester.handle_answer(now, round, self.id, Err(cause), self.eligibility);
    }

    /// Tells those who wait for it that nothing is owed. Returns whether the lane can end.
    fn has_settled(&mut self) -> bool {
        if !self.owed_releases.is_empty() {
            return false;
        }
        for done in self.drains.drain(..) {
            // An error means that nobody waits any more.
            let _ = done.send(());
        }
        self.closed
    }
}

impl<R: Requester> Drop for Lane<R> {
    /// The runtime may end before the lane does. Releases that did not leave stay counted, as those in
    /// flight do, except where there is nothing to release.
    fn drop(&mut self) {
        let gathered = std::mem::take(&mut self.gathered).into_iter();
        let queued = std::iter::from_fn(|| self.inbox.try_recv().ok());
        for message in gathered.chain(queued) {
            if message.is_release()
                && let Message::Request(_, origin) = message
                && !origin.requester.set_requests().was_sent(self.id)
            {
                self.owed_releases.note_taken();
            }
        }
    }
}

fn connecting() -> NodeError {
    NodeError::Unreachable("connecting".into())
}

/// What to tell requests while there is no connection, from why there is none.
fn not_connected(cause: &NodeError) -> NodeError {
    match cause {
        NodeError::Unreachable(_) => cause.clone(),
        refusal if refusal.is_refusal() => cause.clone(),
        other => NodeError::Unreachable(other.to_string().into()),
    }
}
