use core::fmt;

/// A fact that an [`Electorate`](crate::Electorate) checks before a node may vote. A check is
/// *unmet* if the server does not say what the check needs.
///
/// ```
/// use redlock_core::{Check, Checks};
///
/// let unmet: Checks = [Check::Role, Check::Promotion].into_iter().collect();
/// assert!(unmet.contains(Check::Role) && !unmet.contains(Check::Server));
/// assert_eq!(unmet.iter().count(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Which server the node is (`run_id`, or `master_replid` in its place). Without this check, one server
    /// under two addresses votes twice, and another server that takes the node's place is only noticed if
    /// it has been up for a shorter or a longer time.
    Server,
    /// Whether the server is a master (`role`). Without this check, a replica votes if it accepts writes.
    Role,
    /// Since when the server has been up (`uptime_in_seconds`). Without this check, a server that has just
    /// restarted votes at once, although it may have forgotten locks.
    Start,
    /// Whether the server was promoted (`master_replid2`). Without this check, a replica that was promoted
    /// before the client first saw it votes at once, although it may lack locks.
    Promotion,
}

impl Check {
    /// All checks, in the order in which a set lists them.
    pub(crate) const ALL: [Self; 4] = [Self::Server, Self::Role, Self::Start, Self::Promotion];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of [checks](Check).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Checks(u8);

impl Checks {
    /// No check.
    pub(crate) const NONE: Self = Self(0);

    /// Returns whether the check is in the set.
    #[must_use]
    pub const fn contains(self, check: Check) -> bool {
        self.0 & check.bit() != 0
    }

    /// Returns whether no check is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the checks, in the order of the variants of [`Check`].
    pub fn iter(self) -> impl Iterator<Item = Check> {
        Check::ALL
            .into_iter()
            .filter(move |check| self.contains(*check))
    }
}

impl FromIterator<Check> for Checks {
    fn from_iter<I: IntoIterator<Item = Check>>(checks: I) -> Self {
        Self(checks.into_iter().fold(0, |set, check| set | check.bit()))
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_set_is_shown_by_its_checks() {
        let two: Checks = [Check::Start, Check::Server].into_iter().collect();
        assert_eq!(format!("{two:?}"), "{Server, Start}");
    }
}
