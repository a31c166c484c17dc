//! The result for a task that waited for a lock: a guard, or the reason why there is none.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use redlock_core::{AcquireFailure, End, LossReason, Timestamp};

use super::observed::{self, ObservedRequest};
use crate::{
    Attempts, LockError, LockGuard, NodeError, NodeReport, Objection, RandomError,
    engine::{
        queue::Refusal,
        requests::{Claimant, Client, Handle, RequestEnd},
    },
    key::KeySet,
    node::status,
};

/// Waits for the outcome of a request, which was made at `since`.
pub(super) fn poll_outcome(
    guard: &mut LockGuard,
    since: Timestamp,
    now: Timestamp,
    cx: &Context<'_>,
    observed: &Option<Box<ObservedRequest>>,
) -> Poll<Result<bool, RequestEnd>> {
    let mut claimant = Claimant {
        waker: cx.waker().clone(),
        since,
        subject: observed.as_deref().map(|it| &it.subject),
    };
    guard.poll_taken(now, &mut claimant)
}

/// Returns the guard, or the reason why its lease has no lock.
pub(super) fn conclude(
    guard: LockGuard,
    since: Timestamp,
    outcome: Result<bool, RequestEnd>,
    observed: &mut Option<Box<ObservedRequest>>,
) -> Result<LockGuard, LockError> {
    let client = guard.handle().client();
    let request = Request::of_lease(guard.handle(), since);
    let error = match outcome {
        Err(end) => request.failure(end),
        Ok(true) => {
            guard.handle().log_acquisition();
            client.outage.note_success();
            observed::succeed(observed);
            return Ok(guard);
        }
        // Without a runtime no lock is given out, and the nodes are not to blame.
        Ok(false) if client.is_shut_down() => LockError::ShutDown,
        // The task was kept from running since the lock was acquired.
        Ok(false) => LockError::NotPolled(request.attempts(guard.handle().tries())),
    };
    Err(observed::fail(observed, error))
}

/// A request, for the errors that report on it.
pub(super) struct Request<'a> {
    pub(super) client: &'a Client,
    keys: &'a KeySet,
    since: Timestamp,
    /// `None` before it has begun.
    lease: Option<&'a Handle>,
}

impl<'a> Request<'a> {
    pub(super) fn new(client: &'a Client, keys: &'a KeySet, since: Timestamp) -> Self {
        Self {
            client,
            keys,
            since,
            lease: None,
        }
    }

    pub(super) fn of_lease(lease: &'a Handle, since: Timestamp) -> Self {
        Self {
            client: lease.client(),
            keys: lease.keys(),
            since,
            lease: Some(lease),
        }
    }

    /// Returns why the request ended without the lock, and notes an outage.
    pub(super) fn failure(&self, end: RequestEnd) -> LockError {
        if self.client.is_shut_down() {
            return LockError::ShutDown;
        }
        let error = self.error(end);
        // The nodes are the cause, and not other clients or the caller.
        if let LockError::NoQuorum(_) | LockError::TooSlow(_) | LockError::Quarantined { .. } =
            error
        {
            self.client.outage.note_failure(self.now(), &error);
        }
        error
    }

    /// Returns why no majority can vote, and notes the outage.
    pub(super) fn refusal(&self) -> LockError {
        let attempts = self.lease.map_or(0, Handle::tries);
        let error = without_majority(self.client, self.attempts(attempts));
        self.client.outage.note_failure(self.now(), &error);
        error
    }

    fn error(&self, end: RequestEnd) -> LockError {
        match end {
            RequestEnd::Refused(Refusal::Busy) => self.passed_over(),
            RequestEnd::Refused(Refusal::Full {
                waiting,
                limit,
                limited_by,
            }) => LockError::QueueFull {
                waiting,
                limit,
                limited_by,
            },
            RequestEnd::NoRandomness(error) => LockError::Random(RandomError(error)),
            RequestEnd::Ended(End::Exhausted { failure, tries }) => match failure {
                AcquireFailure::Contended if tries == 0 => self.passed_over(),
                AcquireFailure::Contended => LockError::Contended(self.attempts(tries)),
                AcquireFailure::NoQuorum => no_quorum(self.attempts(tries)),
                AcquireFailure::TooSlow => LockError::TooSlow(self.attempts(tries)),
                AcquireFailure::Quarantined { until } => LockError::Quarantined {
                    remaining: self
                        .client
                        .quorum_in()
                        .unwrap_or(until.saturating_duration_since(self.now())),
                    attempts: self.attempts(tries),
                },
                AcquireFailure::FenceExhausted => LockError::FenceExhausted,
                // The enum may grow. This driver cannot distinguish failures that it does not know.
                _ => LockError::ShutDown,
            },
            RequestEnd::Ended(End::Lost(LossReason::Abandoned)) => LockError::ShutDown,
            RequestEnd::Ended(end) => {
                let attempts = self.attempts(self.lease.map_or(0, Handle::tries));
                match end {
                    // Only a lock that was granted expires, or was held for too long.
                    End::Lost(LossReason::Expired | LossReason::MaxHold) => {
                        LockError::NotPolled(attempts)
                    }
                    _ => LockError::TooSlow(attempts),
                }
            }
        }
    }

    /// Returns why the request never had its turn in this process: another task holds the lock, or the nodes keep that
    /// task from the lock.
    fn passed_over(&self) -> LockError {
        let own = self.lease.map(Handle::id);
        let attempts = self.attempts(0);
        if self.client.is_held_by_another(self.keys, own)
            || self.client.quorum_in() == Some(Duration::ZERO)
        {
            return LockError::Contended(attempts);
        }
        without_majority(self.client, attempts)
    }

    fn attempts(&self, count: u32) -> Attempts {
        let quorum = self.client.quorum;
        Attempts {
            count,
            votes_needed: quorum.votes(),
            nodes_total: quorum.nodes(),
            waited: self.now().saturating_duration_since(self.since),
            permits: self.keys.slots().map(|slots| slots.permits().count()),
            share: self.keys.share(),
            taken_by: self
                .lease
                .and_then(|it| it.taken_by(self.now()))
                .map(Box::new),
            ahead: self.lease.and_then(Handle::ahead),
            nodes: self.lease.map(Handle::reports).unwrap_or_default(),
        }
    }

    fn now(&self) -> Timestamp {
        self.client.clock.now()
    }
}

/// Returns why the nodes grant no lock now, by what is known of them.
fn without_majority(client: &Client, mut attempts: Attempts) -> LockError {
    let nodes = client.nodes();
    let quorum_in = status::quorum_in(&nodes, client.quorum);
    attempts.nodes = status::objections(nodes);
    match quorum_in {
        Some(remaining) if !remaining.is_zero() => LockError::Quarantined {
            remaining,
            attempts,
        },
        _ => LockError::NoQuorum(attempts),
    }
}

fn no_quorum(attempts: Attempts) -> LockError {
    let is_overloaded = |it: &&NodeReport| it.objection == Objection::Failed(NodeError::Overloaded);
    let overloaded = attempts.nodes.iter().filter(is_overloaded).count();
    let others = attempts.nodes.len() - overloaded;
    if overloaded > 0 && attempts.nodes_total - others >= attempts.votes_needed {
        LockError::Overloaded(attempts)
    } else {
        LockError::NoQuorum(attempts)
    }
}
