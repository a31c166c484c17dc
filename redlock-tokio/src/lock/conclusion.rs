//! What a task that waited for a lock gets: a guard, or the reason why there is none.

use std::time::Duration;

use redlock_core::{AcquireFailure, LossReason, Timestamp};

use crate::{
    Attempts, Hold, LockError, LockGuard, NodeError, NodeReport, Objection,
    engine::{
        lease_cell::{Client, End, LeaseCell, WaitOutcome},
        queue::Refusal,
    },
    node::status,
};

/// Returns the guard, or the reason why the lease has no lock. `since` is the time of the request.
pub(super) fn conclude(
    cell: &LeaseCell,
    guard: LockGuard,
    since: Timestamp,
    outcome: WaitOutcome,
) -> Result<LockGuard, LockError> {
    let (mut guard, end) = match outcome {
        WaitOutcome::Held => (guard, None),
        // From here on, dropping the guard releases the lock that was handed over. The guard of the lease that
        // waited has nothing to release.
        WaitOutcome::HandedOver(held) => (LockGuard::new(Hold::new(held)), None),
        WaitOutcome::Ended(end) => (guard, Some(end)),
    };
    // Without a runtime no lock is given out, and the nodes are not to blame.
    if cell.is_shut_down() {
        return Err(LockError::ShutDown);
    }
    match end {
        Some(end) => Err(failure(cell, since, end)),
        None if guard.claim(cell.now().saturating_duration_since(since)) => {
            guard.cell().log_acquisition();
            Ok(guard)
        }
        // The runtime has ended since the lock was acquired.
        None if guard.cell().is_abandoned() => {
            #[cfg(all(test, redlock_shuttle))]
            crate::threads::sometimes("the runtime ended before the claim", true);
            Err(LockError::ShutDown)
        }
        // The task was kept from running since the lock was acquired.
        None => Err(LockError::TooSlow(attempts(cell, since, cell.attempts()))),
    }
}

/// Returns why the nodes grant no lock now, by what is known of them.
pub(super) fn without_majority(client: &Client, mut attempts: Attempts) -> LockError {
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

/// Returns why a lease ended without the lock.
fn failure(cell: &LeaseCell, since: Timestamp, end: End) -> LockError {
    let attempts = |count| attempts(cell, since, count);
    match end {
        End::Refused(Refusal::Busy) => passed_over(cell, attempts(0)),
        End::Refused(Refusal::Full {
            waiting,
            limit,
            limited_by,
        }) => LockError::QueueFull {
            waiting,
            limit,
            limited_by,
        },
        End::Exhausted {
            failure,
            attempts: count,
        } => match failure {
            AcquireFailure::Contended if count == 0 => passed_over(cell, attempts(0)),
            AcquireFailure::Contended => LockError::Contended(attempts(count)),
            AcquireFailure::NoQuorum => no_quorum(attempts(count)),
            AcquireFailure::TooSlow => LockError::TooSlow(attempts(count)),
            AcquireFailure::Quarantined { until } => LockError::Quarantined {
                remaining: cell
                    .quorum_in()
                    .unwrap_or(until.saturating_duration_since(cell.now())),
                attempts: attempts(count),
            },
            AcquireFailure::FenceExhausted => LockError::FenceExhausted,
            // The enum may grow. This driver cannot distinguish failures that it does not know.
            _ => LockError::ShutDown,
        },
        End::Lost(LossReason::Abandoned) => LockError::ShutDown,
        End::Lost(_) | End::Released(_) | End::GivenUp | End::TookOver => {
            LockError::TooSlow(attempts(cell.attempts()))
        }
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

fn attempts(cell: &LeaseCell, since: Timestamp, count: u32) -> Attempts {
    let quorum = cell.quorum();
    Attempts {
        count,
        votes_needed: quorum.votes(),
        nodes_total: quorum.nodes(),
        waited: cell.now().saturating_duration_since(since),
        nodes: cell.reports(),
    }
}

/// Returns why a lease never had its turn in this process: another task holds the lock, or the nodes keep that task
/// from the lock.
fn passed_over(cell: &LeaseCell, attempts: Attempts) -> LockError {
    if cell.is_held_by_another() || cell.quorum_in() == Some(Duration::ZERO) {
        return LockError::Contended(attempts);
    }
    without_majority(cell.client(), attempts)
}
