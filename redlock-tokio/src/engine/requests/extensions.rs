use redlock_core::LossReason;

/// How an extension that a holder asked for ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtensionOutcome {
    Extended,
    /// No majority agreed in time. The lock is still held, and the next extension is tried soon.
    Failed,
    /// The lock was held for the longest time that it may be extended to. It is still held.
    MaxHold,
    Lost(LossReason),
    /// The holder has released the lock or handed it over.
    Released,
}

/// The extensions of one lease that have ended.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    /// Wraps only after four billion extensions of one lease.
    ended: u32,
    last_succeeded: bool,
}

/// Identifies an extension that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtensionNumber(u32);

impl Extensions {
    /// Returns the number of the next extension to end.
    pub(super) const fn next(&self) -> ExtensionNumber {
        ExtensionNumber(self.ended)
    }

    pub(super) const fn note_end(&mut self, succeeded: bool) {
        self.ended = self.ended.wrapping_add(1);
        self.last_succeeded = succeeded;
    }

    /// Returns how the extension with this number ended, or how a later one did. `None` while it is under way.
    pub(super) fn outcome(&self, number: ExtensionNumber) -> Option<ExtensionOutcome> {
        let outcome = if self.last_succeeded {
            ExtensionOutcome::Extended
        } else {
            ExtensionOutcome::Failed
        };
        (self.ended != number.0).then_some(outcome)
    }
}
