use std::{
    future::pending, mem, ops::ControlFlow, panic::AssertUnwindSafe, pin::Pin, sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redlock_core::Tenure;
use tokio::{
    task::yield_now,
    time::{Instant, Sleep, sleep},
};

use super::{
    Lane,
    connecting::{Inspector, NewSession},
    discovery::Tenures,
    handle::Asked,
    in_flight::{Completed, InFlight, SILENCE_LIMIT, panicked},
    inbox::yield_to_ready,
};
use crate::{NodeError, foreign, node::Session};

/// A lane while it has a session: it sends requests, delivers answers, and answers for a node that
/// stays silent.
pub(super) struct Serving<'a> {
    lane: &'a mut Lane,
    session: Box<dyn Session>,
    /// Resolves when the session is found to be broken.
    closed: BoxFuture<'static, NodeError>,
    in_flight: InFlight,
    inspector: Inspector,
    /// The questions about keys that were not answered yet.
    asked: FuturesUnordered<Asked>,
    /// The tenure of the server and what its authority reports, if there is one.
    owner: Option<NamedServer>,
    timer: Timer,
    /// Whether the node was silent when this was last checked.
    is_silent: bool,
}

/// The server of a session as the owner of its node.
struct NamedServer {
    /// The tenure in which the server was connected to.
    tenure: Tenure,
    tenures: Tenures,
}

/// The fate of the requests that come now.
enum Intake {
    /// They are sent.
    Send,
    /// They wait in the outbox for a moment.
    Wait,
    /// They are answered at once and not sent.
    Refuse(NodeError),
}

impl<'a> Serving<'a> {
    pub(super) fn new(lane: &'a mut Lane, mut new: NewSession) -> Self {
        let inspector = lane.connector.inspector(&new);
        let tenures = lane.connector.tenures();
        let owner = new.tenure.zip(tenures);
        let counters = Arc::clone(&lane.inbox.counters);
        Self {
            in_flight: InFlight::new(lane.limits.answer, counters),
            lane,
            closed: new.session.closed(),
            session: new.session,
            inspector,
            owner: owner.map(|(tenure, tenures)| NamedServer { tenure, tenures }),
            timer: Timer::new(),
            asked: FuturesUnordered::new(),
            is_silent: false,
        }
    }

    /// Serves requests until the lane has ended.
    ///
    /// # Errors
    ///
    /// Returns why the session must not be used any more. Everything that was in flight is answered
    /// then.
    pub(super) async fn run(mut self) -> Result<(), NodeError> {
        let served = AssertUnwindSafe(self.serve()).catch_unwind().await;
        let outcome = served.unwrap_or_else(|_| Err(panicked()));
        if let Err(error) = &outcome {
            self.give_up(error);
        }
        outcome
    }

    async fn serve(&mut self) -> Result<(), NodeError> {
        self.lane.inbox.answers.owed_releases.become_due();
        self.lane.inbox.rejoin_lines();
        loop {
            self.lane.inbox.beat();
            let answers = &mut self.lane.inbox.answers;
            answers.forget_expired();
            answers
                .owed_releases
                .send_due(&mut self.in_flight, &mut *self.session);
            let is_idle = self.in_flight.is_empty() && self.asked.is_empty();
            if is_idle && self.lane.inbox.has_ended() {
                return Ok(());
            }
            let intake = self.intake();
            self.arm_timer(&intake);
            self.lane.observe();
            if let ControlFlow::Break(error) = self.handle_next(&intake).await {
                return Err(error);
            }
        }
    }

    fn intake(&self) -> Intake {
        if self.in_flight.is_silent() {
            Intake::Refuse(NodeError::Silent)
        } else if self.in_flight.has_room() {
            Intake::Send
        } else {
            Intake::Wait
        }
    }

    fn arm_timer(&mut self, intake: &Intake) {
        self.timer.arm_for(self.in_flight.next_timeout());
        self.timer.arm_for(self.lane.right.log_change());
        self.timer.arm_for(self.lane.inbox.answers.beats.due());
        if matches!(intake, Intake::Send) {
            let owed_releases = &self.lane.inbox.answers.owed_releases;
            self.timer.arm_for(owed_releases.next_try());
        }
    }

    /// Waits for an event and handles it. Breaks if the session must not be used any more.
    async fn handle_next(&mut self, intake: &Intake) -> ControlFlow<NodeError> {
        tokio::select! {
            biased;
            completed = self.in_flight.next_completed() => self.handle_completed(completed),
            error = &mut self.closed => ControlFlow::Break(error),
            () = reported(&mut self.owner), if self.owner.is_some() => self.handle_report(),
            statement = self.inspector.next(&mut *self.session) => {
                let outcome = statement.and_then(|it| self.lane.right.handle_inspection(&it));
                outcome.map_or_else(ControlFlow::Break, ControlFlow::Continue)
            }
            Some(()) = self.asked.next() => ControlFlow::Continue(()),
            () = self.timer.fired() => self.handle_timer().await,
            () = self.lane.inbox.receive(), if !matches!(intake, Intake::Wait) => {
                self.handle_requests(intake).await;
                ControlFlow::Continue(())
            }
        }
    }

    fn handle_completed(&mut self, completed: Completed) -> ControlFlow<NodeError> {
        self.lane.status.answered_in(completed.round_trip);
        self.lane.observed.note_answer(completed.round_trip);
        if let Some(answer) = completed.last_set_answer() {
            let now = self.lane.connector.clock.now();
            let cause = answer.as_ref().err().filter(|error| error.is_of_the_node());
            self.lane.status.asked_to_set_key(now, cause);
        }
        self.note_silence();
        let eligibility = self.lane.right.eligibility();
        self.lane.inbox.answers.deliver(completed, eligibility)
    }

    /// Breaks if another server is the master now.
    fn handle_report(&self) -> ControlFlow<NodeError> {
        if let Some(NamedServer { tenure, tenures }) = &self.owner
            && !tenures.is_current(Some(tenure))
        {
            let owner = self.lane.connector.name_of(&tenure.owner);
            let text = format!("{owner} is no longer the master");
            return ControlFlow::Break(NodeError::Unreachable(text.into()));
        }
        if !self.is_silent {
            // What the votes are worth may have changed.
            self.note_answering();
        }
        ControlFlow::Continue(())
    }

    async fn handle_requests(&mut self, intake: &Intake) {
        if let Intake::Refuse(cause) = intake {
            return self.lane.inbox.refuse(cause);
        }
        yield_to_ready().await;
        let mut has_more = true;
        // Each batch may fill what is left of the room.
        while has_more && self.in_flight.has_room() {
            let batch;
            let questions;
            (batch, questions, has_more) = self.lane.inbox.take_batch();
            for ask in questions {
                let session: &mut dyn Session = &mut *self.session;
                let eligibility = self.lane.right.eligibility();
                // The code of the session may panic, and the batch must be answered all the same.
                let asked = foreign::call(|| ask(Ok(session), eligibility));
                self.asked.extend(asked);
            }
            self.in_flight.send(&mut *self.session, batch);
        }
    }

    /// Answers for batches that have been in flight for too long. They stay in flight: the node may
    /// still carry them out, and its answer shows that it is back.
    async fn handle_timer(&mut self) -> ControlFlow<NodeError> {
        // If this process was kept from running, the answers may have come in time, and wait in the socket.
        yield_now().await;
        if let Some(completed) = self.in_flight.next_completed().now_or_never() {
            return self.handle_completed(completed);
        }
        let (answers, limit) = (&mut self.lane.inbox.answers, self.lane.limits.answer);
        self.in_flight
            .time_out(|batch| answers.report_late(batch, limit));
        self.note_silence();
        if self.in_flight.is_silent_for(SILENCE_LIMIT) {
            return ControlFlow::Break(NodeError::TimedOut(SILENCE_LIMIT));
        }
        ControlFlow::Continue(())
    }

    fn note_silence(&mut self) {
        let was_silent = mem::replace(&mut self.is_silent, self.in_flight.is_silent());
        match (was_silent, self.is_silent) {
            (false, true) => self.lane.status.silent(),
            (true, false) => self.note_answering(),
            (true, true) | (false, false) => {}
        }
    }

    fn note_answering(&self) {
        let eligibility = self.lane.right.eligibility();
        self.lane.status.answering(eligibility);
    }

    /// Answers for everything in flight on the broken session.
    fn give_up(self, error: &NodeError) {
        self.lane.inbox.answers.beats.disconnect();
        for batch in self.in_flight.into_batches() {
            self.lane.inbox.answers.deliver_error(batch, error);
        }
    }
}

/// Waits for the next report of the authority. Pending for ever if there is none.
async fn reported(owner: &mut Option<NamedServer>) {
    match owner {
        Some(owner) => owner.tenures.reported().await,
        None => pending().await,
    }
}

/// One timer for many deadlines.
///
/// The timer is moved only to an earlier time, so deadlines that move to a later time cost nothing.
/// When it fires, its owner checks which deadlines have passed.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    armed: bool,
}

impl Timer {
    fn new() -> Self {
        Self {
            sleep: Box::pin(sleep(Duration::ZERO)),
            armed: false,
        }
    }

    /// Makes the timer fire at `due` or earlier.
    fn arm_for(&mut self, due: Option<Instant>) {
        if let Some(due) = due
            && (!self.armed || due < self.sleep.deadline())
        {
            self.sleep.as_mut().reset(due);
            self.armed = true;
        }
    }

    /// Waits until the timer fires, and disarms it. Pending for ever if the timer is not armed.
    async fn fired(&mut self) {
        if !self.armed {
            pending::<()>().await;
        }
        self.sleep.as_mut().await;
        self.armed = false;
    }
}
