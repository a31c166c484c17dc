use std::fmt;

use crate::foreign::Foreign;

/// The process that a report comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Worker(usize),
    Foreign(Foreign),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(number) => write!(f, "worker {number}"),
            Self::Foreign(foreign) => foreign.fmt(f),
        }
    }
}
