//! Something that must not happen.

use std::fmt;

use crate::judge;

/// A promise that was broken, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    text: String,
}

/// The promises that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Two holds of one key are valid at one instant.
    TwoHolders,
    /// A fencing token does not grow, or a resource refuses the write of its valid holder.
    Fencing,
    /// A holder was told late of its loss, or never.
    LateLoss,
    /// The driver said something that the world does not imply.
    Statement,
    /// Somebody waited for too long.
    Service,
    /// A queue exceeds its limit.
    Limit,
    /// A key stays on a server.
    LeftoverKey,
    /// Tasks, connections or memory stay that nobody needs.
    Remains,
    /// The driver or the simulator panicked.
    Panic,
}

impl Violation {
    /// Returns a violation of this kind for each text.
    pub(crate) fn all(kind: Kind, texts: Vec<String>) -> impl Iterator<Item = Self> {
        texts.into_iter().map(move |it| Self::new(kind, it))
    }

    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }
}

impl From<&judge::Violation> for Violation {
    fn from(violation: &judge::Violation) -> Self {
        let kind = match violation {
            judge::Violation::TwoHolders { .. } => Kind::TwoHolders,
            judge::Violation::FenceDidNotGrow { .. } => Kind::Fencing,
            judge::Violation::ToldLate { .. } => Kind::LateLoss,
        };
        Self::new(kind, violation.to_string())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
