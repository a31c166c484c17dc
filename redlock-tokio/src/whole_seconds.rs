use std::{fmt, time::Duration};

/// A time in whole seconds, rounded up, for messages.
pub(crate) struct WholeSeconds(pub(crate) Duration);

impl fmt::Display for WholeSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_nanos().div_ceil(1_000_000_000))
    }
}
