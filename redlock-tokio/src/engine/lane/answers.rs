use std::{ops::ControlFlow, sync::Arc, time::Duration};

use redlock_core::{Eligibility, NodeId, Operation, Timestamp};

use super::{
    batch::{Batch, Purpose},
    counters::Counters,
    handle::{OnRelease, ReplyTo},
    in_flight::Completed,
    owed_releases::OwedReleases,
};
use crate::{
    Clock, NodeError, foreign,
    node::{Answer, Command, Vote},
};

/// Passes answers to the requesters, and remembers the releases that the node is owed afterwards.
pub(super) struct Answers {
    node: NodeId,
    clock: Clock,
    pub(super) owed_releases: OwedReleases,
    on_release: OnRelease,
}

impl Answers {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        counters: Arc<Counters>,
        on_release: OnRelease,
    ) -> Self {
        Self {
            node,
            clock,
            owed_releases: OwedReleases::new(node, counters),
            on_release,
        }
    }

    /// Passes a batch's answers to the requesters. `eligibility` is what the node's votes are worth
    /// now. Breaks if the session is broken, or if the node is no longer what it was.
    pub(super) fn deliver(
        &mut self,
        completed: Completed,
        eligibility: Eligibility,
    ) -> ControlFlow<NodeError> {
        match completed.answers {
            Ok(answers) => {
                if completed.was_late {
                    // The node is back, and gets the releases that it missed.
                    self.owed_releases.become_due();
                }
                self.deliver_answers(completed.batch, answers, eligibility)
            }
            Err(error) => {
                self.deliver_error(completed.batch, &error);
                ControlFlow::Break(error)
            }
        }
    }

    /// Answers for a batch on a broken session.
    pub(super) fn deliver_error(&mut self, batch: Batch, error: &NodeError) {
        let now = self.clock.now();
        for (command, purpose) in batch.into_commands() {
            if command.operation().sets_key()
                && let Purpose::Request(reply_to) = &purpose
            {
                let token = command.operation().token();
                let requests = reply_to.requester.set_requests();
                requests.note_unanswered(self.node, token);
            }
            // An error is no vote, whatever the node's votes are worth.
            let answer = Err(error.clone());
            self.deliver_one(now, command, purpose, answer, Eligibility::ALWAYS);
        }
    }

    fn deliver_answers(
        &mut self,
        batch: Batch,
        answers: Vec<Answer>,
        eligibility: Eligibility,
    ) -> ControlFlow<NodeError> {
        let now = self.clock.now();
        let mut answers = answers.into_iter();
        let mut flow = ControlFlow::Continue(());
        for (command, purpose) in batch.into_commands() {
            let answer = answers.next().unwrap_or_else(|| {
                Err(NodeError::Unexpected("fewer answers than commands".into()))
            });
            if let Err(error) = &answer
                && error.is_change_of_role()
            {
                // The lane must ask again what the node is.
                flow = ControlFlow::Break(error.clone());
            }
            self.deliver_one(now, command, purpose, answer, eligibility);
        }
        flow
    }

    fn deliver_one(
        &mut self,
        now: Timestamp,
        command: Command,
        purpose: Purpose,
        answer: Answer,
        eligibility: Eligibility,
    ) {
        if matches!(command.operation(), Operation::Release { .. }) {
            // Of several keys, some may be gone.
            if answer == Ok(Vote::Granted) || (command.has_several_keys() && answer.is_ok()) {
                foreign::call(|| (self.on_release)(&command, &**purpose.requester()));
            }
            self.owed_releases.settle(now, command, &purpose, &answer);
        }
        if let Purpose::Request(ReplyTo { requester, round }) = purpose {
            // This wakes tasks, and logs: with code of the user.
            foreign::call(|| requester.handle_answer(now, round, self.node, answer, eligibility));
        }
    }

    /// Answers for a command that was not sent.
    pub(super) fn refuse(&mut self, command: Command, reply_to: ReplyTo, cause: NodeError) {
        let (now, purpose) = (self.clock.now(), Purpose::Request(reply_to));
        self.deliver_one(now, command, purpose, Err(cause), Eligibility::ALWAYS);
    }

    /// Answers for a batch whose answers are late. The batch stays in flight.
    pub(super) fn report_late(&self, batch: &Batch, limit: Duration) {
        let now = self.clock.now();
        for ReplyTo { requester, round } in batch.requesters() {
            let late = Err(NodeError::TimedOut(limit));
            foreign::call(|| {
                let requester = Arc::clone(requester);
                requester.handle_answer(now, *round, self.node, late, Eligibility::ALWAYS);
            });
        }
    }

    /// Forgets the owed releases whose keys have expired by themselves.
    pub(super) fn forget_expired(&mut self) {
        self.owed_releases.forget_expired(self.clock.now());
    }
}
