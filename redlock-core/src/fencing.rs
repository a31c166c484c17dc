use core::fmt;

/// A number that grows with every acquisition of a fenced lock, for the resource to check.
///
/// No lock can stop a holder that was paused, lost its lock without noticing and now sends a write.
/// The *resource* can: it remembers the largest fencing token it has seen and refuses smaller ones
/// (Kleppmann, "How to do distributed locking"). See
/// [`Lease::acquire_fenced`](crate::Lease::acquire_fenced).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token: 2^53 - 1, which Lua scripts and JSON still carry exactly. A counter that
    /// starts at the wall clock in microseconds reaches it in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Creates a token; beyond [`FencingToken::MAX`], that one. For the first proposal take the wall
    /// clock in microseconds, so that a counter that was lost is not counted up from zero. A clock
    /// that was set back since the last proposal must not lower the next one.
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
