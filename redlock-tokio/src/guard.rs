use std::{fmt, ops::Deref};

use redlock_core::ReleaseVerdict;

use crate::{Hold, NodeReports};

/// A held lock. Dropping it releases the lock.
///
/// While it lives the lock is extended in the background, every third of its ttl, until it was held
/// for [`max_hold`](crate::LockOptions::max_hold). Nothing is spawned and no timer is set for a
/// guard: one task keeps all of them.
///
/// A guard can be lost while it lives: when too many nodes fail, when the process is stopped for
/// longer than the lock lives, when someone deletes the key. Ask [`is_valid`](Hold::is_valid) before
/// a step that must not be done twice, watch [`lost`](Hold::lost) beside long work, or let
/// [`Redlock::with_lock`](crate::Redlock::with_lock) do that.
///
/// # Dropping
///
/// Dropping never blocks, spawns or panics, inside or outside of a runtime. The release is handed to
/// the nodes' lanes and costs the caller no round trip; a node that cannot be reached gets it when
/// it is back, and at the latest the key expires after its ttl. Call
/// [`Redlock::shutdown`](crate::Redlock::shutdown) before the runtime ends, so that the last
/// releases are delivered.
#[must_use = "the lock is released as soon as the guard is dropped: bind it to a name, `let _guard = ..` \
              (`let _ = ..` drops it)"]
pub struct LockGuard {
    hold: Hold,
}

impl LockGuard {
    /// Makes the owner of a lease, before it is held: from the first byte on, somebody releases.
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Notes that its owner has it. Returns whether the lock is still held.
    pub(crate) fn claim(&self) -> bool {
        self.hold.held().claim()
    }

    /// Releases the lock and waits until a majority of nodes has confirmed it, or cannot any more. If
    /// others wait for it in this process, it is [handed over](crate::LockOptions::handover_for) instead.
    ///
    /// Costs one round trip to the majority, or none. Use it where the next step must find the lock free;
    /// otherwise drop the guard, which costs nothing.
    ///
    /// # Cancel safety
    ///
    /// The release is on its way once this is polled for the first time, and before that dropping
    /// the future drops the guard, which releases too.
    pub async fn release(self) -> ReleaseReport {
        if self.hold.pass_on() {
            return ReleaseReport {
                outcome: ReleaseOutcome::HandedOver,
                nodes: NodeReports::default(),
            };
        }
        ReleaseReport {
            outcome: match self.hold.held().released().await {
                Some(ReleaseVerdict::Released) => ReleaseOutcome::Released,
                Some(ReleaseVerdict::Unconfirmed) => ReleaseOutcome::Unconfirmed,
                _ => ReleaseOutcome::NotHeld,
            },
            nodes: self.hold.cell().reports(),
        }
    }

    /// Returns a view of the lock that can be cloned and handed on. It does not keep the lock.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.hold.pass_on();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// What became of a [`LockGuard::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseReport {
    /// How it ended.
    pub outcome: ReleaseOutcome,
    /// What the nodes said that did not delete our key, as far as they had answered.
    pub nodes: NodeReports,
}

/// How a [`LockGuard::release`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock went to the next that waited for it in this process, without being released.
    HandedOver,
    /// A majority of nodes deleted the key: the lock is free.
    Released,
    /// The lock had been lost before: the work under it was not protected to its end.
    NotHeld,
    /// Too many nodes did not answer. They get the release when they are back, and at the latest
    /// their keys expire after the ttl.
    Unconfirmed,
}
