use std::{task::Waker, time::Duration};

use redlock_core::{
    AcquireFailure, Eligibility, FencingToken, Lease, LossReason, NodeId, ReleaseVerdict, RoundId,
    Timestamp,
};

use crate::{
    Hold, Objection,
    engine::queue::Refusal,
    node::{Answer, Vote},
};

/// What changes in a [`LeaseCell`](super::LeaseCell).
pub(super) struct CellState {
    pub(super) lease: Lease,
    pub(super) phase: Phase,
    /// Whose hold it is: it goes up whenever the lock is handed over, and whoever has an older number
    /// has nothing to do with it any more.
    pub(super) generation: u64,
    /// Since when it is held in this generation.
    pub(super) held_since: Option<Timestamp>,
    pub(super) queued: Queued,
    /// Other processes were let go first, and what came of it is not noted yet.
    pub(super) yields: bool,
    /// How long this turn of the process is to be, if not as usual.
    pub(super) turn: Option<Duration>,
    /// Whose lock was handed over to us, until it is taken.
    pub(super) handed_over: Option<Hold>,
    /// The deadline that the keeper knows of.
    pub(super) due: Option<Timestamp>,
    /// The task that waits for the lock.
    pub(super) waiting: Option<Waker>,
    /// The fencing token, once the lock was acquired with one.
    pub(super) fence: Option<FencingToken>,
    /// How many extensions have ended, and whether the last one succeeded.
    pub(super) extensions: u64,
    pub(super) extended: bool,
    /// Until when the lock was valid when the last extension was sent.
    pub(super) relied_on: Option<Timestamp>,
    /// The last round that the holder cares about.
    pub(super) watched: Option<RoundId>,
    /// What kept nodes from agreeing to it; or to the round before it, until the first node
    /// objects to this one.
    pub(super) objections: Vec<(NodeId, Objection)>,
    pub(super) objections_are_old: bool,
}

/// What a lease needs while it waits for others within this process.
pub(super) struct Queued {
    /// When its time to wait is over.
    pub(super) deadline: Timestamp,
    /// When the reservation of its keys lapses, if it keeps somebody from one that is free.
    pub(super) lapses_at: Option<Timestamp>,
}

impl Queued {
    fn next_due(&self) -> Timestamp {
        self.lapses_at.unwrap_or(self.deadline).min(self.deadline)
    }
}

/// How far a lease has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for others within this process.
    Queued,
    /// Was not even let wait for them.
    Refused(Refusal),
    /// Got the lock of another lease.
    HandedOver,
    Acquiring,
    Held,
    Exhausted {
        failure: AcquireFailure,
        attempts: u32,
    },
    Lost(LossReason),
    Releasing,
    Released(ReleaseVerdict),
}

impl CellState {
    pub(super) fn new(lease: Lease, deadline: Timestamp) -> Self {
        Self {
            lease,
            phase: Phase::Queued,
            generation: 0,
            held_since: None,
            queued: Queued {
                deadline,
                lapses_at: None,
            },
            yields: false,
            turn: None,
            handed_over: None,
            due: None,
            waiting: None,
            fence: None,
            extensions: 0,
            extended: false,
            relied_on: None,
            watched: None,
            objections: Vec::new(),
            objections_are_old: false,
        }
    }

    /// Returns how far the lease has come for whoever held it in this generation.
    pub(super) fn phase_in(&self, generation: u64) -> Phase {
        if self.generation == generation {
            self.phase
        } else {
            Phase::Released(ReleaseVerdict::Released)
        }
    }

    /// Returns when something is to be done if nothing happens before.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        if self.phase == Phase::Queued {
            Some(self.queued.next_due())
        } else {
            self.lease.poll_timeout()
        }
    }

    /// Remembers why a node did not agree to the watched round.
    pub(super) fn object(
        &mut self,
        node: NodeId,
        now: Timestamp,
        answer: Answer,
        eligibility: Eligibility,
    ) {
        let objection = match answer {
            // A release needs no vote.
            Ok(Vote::Granted) if self.phase == Phase::Releasing => return,
            Ok(Vote::Granted | Vote::Extended { .. } | Vote::Outbid { .. }) => {
                let remaining = eligibility.remaining(now);
                if remaining.is_zero() {
                    return;
                }
                Objection::Quarantined { remaining }
            }
            Ok(Vote::Free | Vote::Taken { .. }) => return,
            Ok(Vote::Denied) => Objection::Denied,
            Err(error) => Objection::Failed(error),
        };
        if self.objections_are_old {
            self.objections_are_old = false;
            self.objections.clear();
        }
        // A node that answers late speaks twice; its first word was only that it was late.
        self.objections.retain(|(earlier, _)| *earlier != node);
        self.objections.push((node, objection));
    }
}

impl Phase {
    /// Returns whether the lease has a place in the line for its key.
    pub(super) fn is_in_line(self) -> bool {
        matches!(self, Self::Queued | Self::Acquiring | Self::Held)
    }

    /// Ended before a single attempt was made.
    pub(super) fn exhausted(failure: AcquireFailure) -> Self {
        Self::Exhausted {
            failure,
            attempts: 0,
        }
    }

    /// Returns whether whoever wants the lock has to wait yet.
    pub(super) fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::Acquiring)
    }

    pub(super) fn has_ended(self) -> bool {
        match self {
            Self::Queued | Self::HandedOver | Self::Acquiring | Self::Held | Self::Releasing => {
                false
            }
            Self::Refused(_) | Self::Exhausted { .. } | Self::Lost(_) | Self::Released(_) => true,
        }
    }
}
