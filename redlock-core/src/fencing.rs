use core::{fmt, time::Duration};

/// A number that grows with every acquisition of a fenced lock, for the resource to check.
///
/// A holder may be paused, lose its lock meanwhile, and then send a write. No lock can stop that write,
/// but the *resource* can: it remembers the largest fencing token that it has seen, and refuses smaller
/// ones (Kleppmann, "How to do distributed locking"). It accepts the same token again: one holder may write several
/// times. See [`Lease::acquire_fenced`](crate::Lease::acquire_fenced).
///
/// ```
/// use redlock_core::FencingToken;
///
/// let [earlier, later] = [1_700_000_000_000_000, 1_700_000_000_000_001].map(FencingToken::new);
/// assert!(earlier < later);
/// assert_eq!(earlier.next(), Some(later));
/// assert_eq!(FencingToken::MAX.next(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token: 2^53 - 1, the largest number that Lua scripts and JSON carry exactly. A counter
    /// that starts at the wall clock in microseconds reaches it in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// How long a node must remember a counter after it was raised: a day.
    ///
    /// A token that is given out later is larger even without the counter, because the wall clock has gone on. An
    /// attempt proposes its token at most a ttl before the token reaches a node. So this holds if wall clocks differ by
    /// less than a day less the ttl of the lock. As long as no node loses a counter before, tokens need nothing else of
    /// wall clocks. How long the lock was held does not matter: the counter is needed least after a long hold.
    ///
    /// A day is longer than the error of a clock that shows the local time instead of UTC, which is at most 14 hours.
    pub const COUNTER_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

    /// Creates a token. A number beyond [`FencingToken::MAX`] makes that token.
    ///
    /// Use the wall clock in microseconds as the first proposal, so that a counter that was lost does not
    /// start from zero again. A clock that was set back since the last proposal must not lower the next
    /// one.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        if number < Self::MAX.0 {
            Self(number)
        } else {
            Self::MAX
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next larger token, or `None` after the last.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        if self.0 < Self::MAX.0 {
            Some(Self(self.0 + 1))
        } else {
            None
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_what_lua_and_json_carry_exactly() {
        // JavaScript's Number.MAX_SAFE_INTEGER.
        assert_eq!(FencingToken::MAX.get(), 9_007_199_254_740_991);
    }

    #[test]
    fn counts_up_to_the_end() {
        let one = FencingToken::new(1);
        assert_eq!(one.next().map(FencingToken::get), Some(2));
        assert!(one.next() > Some(one));
        assert_eq!(FencingToken::new(u64::MAX), FencingToken::MAX);
        assert_eq!(FencingToken::MAX.next(), None);
        let last = FencingToken::new(FencingToken::MAX.get() - 1);
        assert_eq!(last.next(), Some(FencingToken::MAX));
    }
}
