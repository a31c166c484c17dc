use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{FencingToken, LossReason, Token};

use crate::{
    ExtendError, Key,
    engine::lease_cell::{ExtensionOutcome, HeldLease, LeaseCell},
};

/// A view of a held lock: whether it is still held, for how long, and when it is lost.
///
/// A view does not keep the lock; the [`LockGuard`](crate::LockGuard) does. Clones are cheap and can
/// be handed to whatever works under the lock.
#[derive(Clone)]
pub struct Hold {
    held: HeldLease<Arc<LeaseCell>>,
}

impl Hold {
    pub(crate) fn new(held: HeldLease<Arc<LeaseCell>>) -> Self {
        Self { held }
    }

    /// Returns whether the lock is held now.
    ///
    /// Reads the clock and asks no node, so the answer is right even after the process was stopped for
    /// longer than the lock lives. If somebody deletes the key on the nodes, the next renewal notices it, a
    /// third of the ttl later at most by default. The answer can become untrue at once: a step that must not
    /// happen without the lock needs a fencing token, not this.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.held.valid_until(self.cell().now()).is_some()
    }

    /// Returns how long the lock stays valid if no extension succeeds; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.cell().now();
        self.held
            .valid_until(now)
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Waits until the lock is lost, and returns why.
    ///
    /// A release is no loss: after one, this waits for ever.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches, and can be called again. If the lock is already lost it
    /// returns at once.
    pub async fn lost(&self) -> LossReason {
        self.held.lost().await
    }

    /// Extends the lock now, by the full ttl. (Background renewal does so by itself.)
    ///
    /// Costs one round trip to the majority. Joins an extension that is under way.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an extension that was started goes on without its caller, and renewal knows
    /// of it.
    ///
    /// # Errors
    ///
    /// Says whether the lock is still held: after [`ExtendError::NoQuorum`] and
    /// [`ExtendError::MaxHold`] it is.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        match self.held.extend().await {
            ExtensionOutcome::Extended => Ok(()),
            ExtensionOutcome::Failed => Err(ExtendError::NoQuorum {
                remaining: self.remaining(),
                nodes: self.cell().reports(),
            }),
            ExtensionOutcome::MaxHold => Err(ExtendError::MaxHold {
                remaining: self.remaining(),
            }),
            ExtensionOutcome::Lost(reason) => Err(ExtendError::Lost(reason)),
            ExtensionOutcome::Released => Err(ExtendError::Released),
        }
    }

    /// Returns the key, with its prefix; the first of them, if the lock has several.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.cell().keys().first()
    }

    /// Returns all keys, with their prefix, in order and without repetitions.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.cell().keys().iter()
    }

    /// Returns the fencing token, if the lock was acquired with [one](crate::Lock::fenced).
    ///
    /// Send it with every write to a resource that refuses smaller tokens than it has seen, such as
    /// `UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence < $2`: then a holder that was paused
    /// and does not know that its lock is lost cannot overwrite what a later holder has written.
    ///
    /// Where the new value depends on the old one, store the token *before* that is read (`UPDATE account SET
    /// fence = $2 WHERE id = $3 AND fence < $2`), and write where `fence = $2`. Otherwise a late write could
    /// still come between a later holder's read and its write. The program `fenced` in `examples` does so.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.cell().fence()
    }

    /// Returns the value that the key has on the nodes while the lock is held.
    ///
    /// Holds that were [handed over](crate::LockOptions::handover_for) within this process have the same
    /// one. It is *not* a fencing token: tokens have no order.
    #[must_use]
    pub fn token(&self) -> Token {
        self.cell().token()
    }

    pub(crate) fn cell(&self) -> &Arc<LeaseCell> {
        self.held.lease()
    }

    pub(crate) fn held(&self) -> &HeldLease<Arc<LeaseCell>> {
        &self.held
    }

    /// Hands the lock over to the next that waits for it in this process, or releases it. Returns
    /// whether it was handed over.
    pub(crate) fn pass_on(&self) -> bool {
        // What a holder that panics leaves behind is not handed on as if nothing had happened.
        let handed_over = !std::thread::panicking() && self.held.hand_over();
        if !handed_over {
            self.held.release();
        }
        handed_over
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", self.key())
            .field("remaining", &self.remaining())
            .finish()
    }
}
