/// Counts the holders that a lease had: each handover starts a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl Generation {
    pub(super) const FIRST: Self = Self(0);

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A lease as one of its holders sees it. A holder of an earlier generation cannot change the lease any more.
///
/// `L` is a handle of a lease.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease<L> {
    pub(super) lease: L,
    pub(super) generation: Generation,
}

impl<L> HeldLease<L> {
    /// Returns the lease as its first holder sees it, from the moment it is created.
    pub(crate) const fn first(lease: L) -> Self {
        Self {
            lease,
            generation: Generation::FIRST,
        }
    }

    /// Returns whether the lock was handed over to this holder, and not granted by nodes.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.generation != Generation::FIRST
    }

    pub(crate) const fn lease(&self) -> &L {
        &self.lease
    }
}
