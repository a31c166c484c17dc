//! What errors say must be what the world implies.

use std::time::Duration;

use redlock_tokio::{LockError, LossReason, Timestamp, WaiterLimit, errors::Attempts};

use super::{environment::Environment, terms::Terms};
use crate::{
    clock::MILLI,
    requests::{Keys, OpenRequest},
    seen::Seen,
    services::Service,
};

/// A request that was made.
pub(crate) struct Asked {
    pub(crate) environment: Environment,
    pub(crate) service: Service,
    pub(crate) terms: Terms,
    pub(crate) open: OpenRequest,
    /// When it was made, by the clock of the process.
    pub(crate) at: Timestamp,
    pub(crate) keys: Keys,
}

/// How much later than `wait` a request may end: one attempt at most. Each of its rounds, three with a fence, lasts
/// until all nodes have answered or are silent.
pub(super) const LAST_ATTEMPT: Duration = Duration::from_millis(3 * 50 + 10);

/// How much longer a silent node has if a batch before is full, by `KEYS_PER_TIMEOUT` of the lane.
const FULL_BATCH: Duration = Duration::from_millis(3 * 50);

/// How long a look at all slots of a semaphore takes at most.
const LOOK: Duration = Duration::from_millis(50 + 10);

/// How long a request may take to end once the shutdown has begun.
const PROMPT: u64 = 10 * MILLI;

impl Asked {
    /// Returns how much later than `wait` the request may end. For a permit, a look and another attempt may follow the
    /// first one.
    fn last_attempt(&self) -> Duration {
        match self.keys {
            Keys::Permit => 2 * LAST_ATTEMPT + LOOK,
            _ => LAST_ATTEMPT,
        }
    }

    /// Judges the error with which the request has ended.
    pub(crate) fn judge(&self, error: &LockError) {
        let seen = seen_as(error);
        self.environment.note(seen);
        self.environment.tell(("not granted", seen));
        if let Some(text) = self.contradiction(error) {
            self.environment.fail(format_args!("{text}: {error}"));
        }
        if let Some(attempts) = error.attempts() {
            self.judge_attempts(attempts);
        }
    }

    fn contradiction(&self, error: &LockError) -> Option<&'static str> {
        let Self {
            environment,
            service,
            terms,
            open,
            ..
        } = self;
        let is_quiet = environment.is_quiet(open.since);
        let has_bad_key = self.keys == Keys::Bad;
        let is_possible = match error {
            LockError::InvalidKey(_) => return (!has_bad_key).then_some("the key is good"),
            LockError::InvalidOptions(_) => {
                return (!terms.is_invalid).then_some("the options are good");
            }
            LockError::ShutDown => return self.late_shutdown(),
            // Nobody else wants the key.
            LockError::Contended(_) if is_quiet && self.keys == Keys::Alone => false,
            // A process that stood still has not yet seen what has ended meanwhile.
            LockError::Contended(attempts) if attempts.count == 0 => {
                let reach = environment.max_ttl();
                let since = open.since.saturating_sub(reach);
                let has_rival = match attempts.ahead {
                    Some(_) => open.has_rival(reach),
                    None => open.has_rival_in_process(reach),
                };
                has_rival || environment.stood_still_since(since)
            }
            // A key outlives its holder by a ttl, and a request that is under way by less than that.
            // A later attempt may find the key of an earlier one, if the release is late. A yes may become a no.
            LockError::Contended(attempts) => {
                let is_unsure = attempts.count > 1 || environment.has_senseless_answers();
                open.has_rival(4 * environment.max_ttl()) || (is_unsure && !is_quiet)
            }
            LockError::NotPolled(_) => environment.stood_still_since(open.since),
            LockError::NoQuorum(_) | LockError::TooSlow(_) | LockError::Quarantined { .. } => {
                self.nodes_may_fail((environment.scale.servers - 1) / 2)
            }
            LockError::QueueFull {
                waiting,
                limit,
                limited_by,
            } => {
                let of_key = terms.max_waiters;
                let of_key = of_key.unwrap_or(service.house.max_waiters_per_key);
                let expected = match limited_by {
                    WaiterLimit::PerKey => of_key,
                    _ => service.house.max_waiters_total,
                };
                // This one is among them.
                let requests = environment.records.requests.lock();
                let alive = requests.alive(service.id, open.since).requests;
                waiting >= limit && *waiting < alive && *limit == expected
            }
            _ => false,
        };
        if has_bad_key || terms.is_invalid {
            return Some("a request that is invalid was not refused as such");
        }
        (!is_possible).then_some("nothing implies this")
    }

    /// Returns whether more nodes than there are to spare may be the reason why something fails.
    pub(super) fn nodes_may_fail(&self, spare: usize) -> bool {
        let (service, ttl) = (self.service.id, self.terms.ttl);
        self.environment
            .nodes_may_fail(service, spare, ttl, self.open.since)
    }

    fn late_shutdown(&self) -> Option<&'static str> {
        let Some(closed_at) = self.service.closed_at() else {
            return Some("nobody has shut it down");
        };
        let environment = &self.environment;
        let since = closed_at.max(self.open.since);
        let is_late = environment.now() > since + PROMPT;
        (is_late && !environment.stood_still_since(since))
            .then_some("the request did not end when the shutdown began")
    }

    fn judge_attempts(&self, attempts: &Attempts) {
        let (environment, terms) = (&self.environment, &self.terms);
        let servers = if environment.has_owners() {
            attempts.nodes_total
        } else {
            environment.scale.servers
        };
        if attempts.nodes_total != servers || attempts.votes_needed != servers / 2 + 1 {
            environment.fail(format_args!("wrong votes: {attempts:?}"));
        }
        if terms.max_attempts.is_some_and(|most| attempts.count > most) {
            environment.fail(format_args!(
                "more than {:?}: {attempts}",
                terms.max_attempts
            ));
        }
        let stood_still = environment.stood_still_since(self.open.since);
        let limit = terms.wait.saturating_add(self.last_attempt() + FULL_BATCH);
        if attempts.waited > limit && !stood_still {
            environment.fail(format_args!(
                "waited longer than {:?}: {attempts}",
                terms.wait
            ));
        }
    }
}

/// Returns as what a failed request counts.
fn seen_as(error: &LockError) -> Seen {
    match error {
        LockError::Contended(_) => Seen::TimedOut,
        LockError::NoQuorum(_) => Seen::NoQuorum,
        LockError::TooSlow(_) | LockError::NotPolled(_) => Seen::TooSlow,
        LockError::Quarantined { .. } => Seen::Quarantined,
        LockError::QueueFull { .. } => Seen::QueueFull,
        LockError::ShutDown => Seen::RefusedByShutdown,
        _ => Seen::RefusedAsInvalid,
    }
}

/// Returns as what a loss counts.
pub(crate) fn loss_seen_as(reason: LossReason) -> Seen {
    match reason {
        LossReason::MaxHold => Seen::LostByMaxHold,
        LossReason::KeysLost => Seen::LostKeys,
        LossReason::VotesWithdrawn => Seen::LostVotes,
        _ => Seen::Lost,
    }
}
