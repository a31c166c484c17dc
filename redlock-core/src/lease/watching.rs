//! Between two attempts: looking at a taken key, to try again when it is free.

use core::time::Duration;

use super::{
    Lease, Operation, RoundId, State, Transmit,
    acquiring::{Budget, Unseen},
    vigil::Vigil,
};
use crate::{AcquireFailure, NodeId, NodeSet, Pause, RetrySchedule, Timestamp};

/// Longer than a failed attempt takes by itself on a local network.
const SOON: Duration = Duration::from_millis(4);

/// By how much answers to looks at one and the same key differ: the server's whole milliseconds, and the
/// way back.
const JITTER: Duration = Duration::from_millis(5);

/// How many attempts that were only too late weigh as much as one that was in each other's way.
const A_COLLISION: u32 = 8;

impl Lease {
    /// Watches a taken key, to try again as soon as it is free.
    pub(super) fn watch(&mut self, now: Timestamp, until: Timestamp, budget: Budget) {
        let retry = self.config.retry;
        // Several that wake at once may get a part of the nodes each, again and again. Whose attempts fail
        // one soon after the other stands back, for longer each time; much sooner if no one else has a
        // majority than if he was only too late.
        let (too_late, lasted) = match &self.state {
            State::Acquiring { round, .. } => {
                let tally = round.tally();
                let lasted = now.saturating_duration_since(round.start());
                (tally.is_blocking(tally.denied()), lasted)
            }
            _ => (false, Duration::ZERO),
        };
        let window = retry.collision_window(budget.failures / A_COLLISION);
        let soon = SOON
            .saturating_add(window.saturating_mul(2))
            .saturating_add(lasted.saturating_mul(2));
        let is_soon = budget.failed_at > Timestamp::ZERO
            && now.saturating_duration_since(budget.failed_at) < soon;
        let failures = match (is_soon, too_late) {
            (false, _) => 0,
            (true, true) => budget.failures.saturating_add(1),
            (true, false) => budget.failures.saturating_add(A_COLLISION),
        };
        let is_first = budget.failed_at == Timestamp::ZERO;
        let missed = budget.missed.saturating_add(u32::from(!is_first));
        // Another half of the random bits than the delay's.
        let random = self.nonce.jitter(self.attempts).rotate_left(32);
        let stand_back = retry.stand_back(failures / A_COLLISION, random);
        let budget = Budget {
            failed_at: now,
            failures,
            missed,
            ..budget
        };
        let id = self.probe();
        self.state = State::Backoff {
            until,
            not_before: now.saturating_add(stand_back).min(until),
            budget,
            vigil: Some(Vigil::new(
                id,
                self.config.quorum,
                missed,
                random.rotate_left(16),
            )),
        };
    }

    /// Watches the key from the start, for others to go first.
    pub(super) fn watch_first(&mut self, now: Timestamp, pause: Pause, budget: Budget) {
        let random = self.nonce.jitter(self.rounds.rotate_left(8));
        let not_before = pause.until;
        let retry = self.config.retry;
        let next = retry.next_probe(budget.deadline, self.attempts, not_before, random, 0);
        let mut vigil = Vigil::yielding(RoundId(self.rounds), self.config.quorum, not_before);
        if pause.is_for_pollers() {
            vigil.check(self.probe());
        }
        self.state = State::Backoff {
            until: next.unwrap_or(not_before),
            not_before,
            budget: Budget {
                failure: Some(AcquireFailure::Contended),
                // As if an attempt had failed now: one that fails later has missed an opening.
                failed_at: now,
                ..budget
            },
            vigil: Some(vigil),
        };
        self.retry(now);
    }

    /// Looks at one node again, as part of the last look.
    pub(super) fn probe_node(&mut self, round: RoundId, node: NodeId) {
        let token = self.token();
        let mut nodes = NodeSet::EMPTY;
        nodes.insert(node);
        self.transmits.push_back(Transmit {
            round,
            nodes,
            operation: Operation::Probe { token },
        });
    }

    fn probe(&mut self) -> RoundId {
        let token = self.token();
        self.send(self.config.quorum.all(), Operation::Probe { token })
    }

    /// Tries again, if there is nothing more to wait for.
    pub(super) fn retry(&mut self, now: Timestamp) {
        let random = self.nonce.jitter(self.rounds.rotate_left(8));
        let State::Backoff {
            until,
            not_before,
            budget,
            vigil,
        } = &mut self.state
        else {
            return;
        };
        if let Some(vigil) = vigil
            && vigil.has_closed(now)
        {
            budget.missed = budget.missed.saturating_add(1);
            vigil.handle_missed(budget.missed, random);
        }
        let (until, budget) = (*until, *budget);
        let opens_at = vigil.as_ref().and_then(Vigil::opens_at);
        let is_open = opens_at.is_some_and(|at| at.max(*not_before) <= now);
        if now < until && !is_open {
            return;
        }
        let failure = budget.failure.unwrap_or(AcquireFailure::NoQuorum);
        if now >= budget.deadline {
            // The timer came too late for another attempt.
            self.exhaust(failure);
        } else if vigil.as_ref().is_some_and(|it| it.is_shut(now)) {
            self.renew_vigil(now, budget, failure);
        } else if now < until && vigil.as_mut().is_some_and(Vigil::take_check) {
            let probe = self.probe();
            if let State::Backoff {
                vigil: Some(vigil), ..
            } = &mut self.state
            {
                vigil.check(probe);
            }
        } else {
            self.attempt(now, budget);
        }
    }

    /// Looks again at a key that nobody has said to be free. The news may have been lost, or there is
    /// nobody who tells.
    fn renew_vigil(&mut self, now: Timestamp, budget: Budget, failure: AcquireFailure) {
        let random = self
            .nonce
            .jitter(self.attempts ^ self.rounds.rotate_left(16));
        let retry = self.config.retry;
        let State::Backoff {
            vigil: Some(vigil), ..
        } = &self.state
        else {
            return;
        };
        let unseen = budget.unseen.after_probe(now, vigil, &retry);
        // Only those that come at the pace that was asked for are counted.
        let probes = budget.probes.saturating_add(u32::from(unseen.count == 0));
        let tries = Budget { probes, ..budget }.tries(self.attempts);
        match retry.next_probe(budget.deadline, tries, now, random, unseen.count) {
            None => self.exhaust(failure),
            Some(next) => {
                let probe = self.probe();
                if let State::Backoff {
                    until,
                    budget,
                    vigil: Some(vigil),
                    ..
                } = &mut self.state
                {
                    *until = next;
                    budget.probes = probes;
                    budget.unseen = unseen;
                    vigil.probe_by_the_clock(probe);
                }
            }
        }
    }
}

impl Unseen {
    /// Counts the opening that the last look has found, if any. A client that is told, or whose key
    /// stays with its holder, has no need to look faster.
    fn after_probe(self, now: Timestamp, vigil: &Vigil, retry: &RetrySchedule) -> Self {
        let Some(until) = vigil.opens_at().filter(|_| !vigil.is_told()) else {
            return Self { count: 0, ..self };
        };
        let is_first = self.until == Timestamp::ZERO;
        if is_first || until > self.until.saturating_add(JITTER) {
            return Self {
                count: self.count.saturating_add(u32::from(!is_first)),
                until,
                found_at: now,
            };
        }
        let quiet = now.saturating_duration_since(self.found_at);
        let count = if retry.is_long(quiet) { 0 } else { self.count };
        Self { count, ..self }
    }
}
