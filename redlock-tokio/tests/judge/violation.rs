use std::fmt;

use redlock_tokio::FencingToken;

use super::HoldId;

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Violation {
    /// Two holds of one key are valid at one instant, and not both are shared.
    TwoHolders {
        key: String,
        /// The hold that began first.
        first: Hold,
        second: Hold,
    },
    /// A fencing token is not larger than that of an earlier hold of the key.
    FenceDidNotGrow {
        key: String,
        /// The earlier hold with the largest token.
        earlier: FencedHold,
        later: FencedHold,
    },
    /// A holder was told too late that its lock is lost.
    ToldLate {
        hold: Hold,
        told: u64,
        /// For how long the holder's process had run since the end of validity.
        late: u64,
    },
}

/// The part of a hold that a violation shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    pub(crate) client: String,
    pub(crate) from: u64,
    /// The end of its validity, or its end if that was earlier.
    pub(crate) until: u64,
}

/// A hold with a fencing token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FencedHold {
    pub(crate) hold: Hold,
    pub(crate) fence: FencingToken,
}

/// A time of the common clock.
struct Seconds(u64);

impl Violation {
    /// Returns the first instant at which the violation was there.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::TwoHolders { second, .. } => second.from,
            Self::FenceDidNotGrow { later, .. } => later.hold.from,
            Self::ToldLate { told, .. } => *told,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoHolders { key, first, second } => {
                write!(f, "two holders of {key}: {first}, and {second}")
            }
            Self::FenceDidNotGrow {
                key,
                earlier,
                later,
            } => write!(
                f,
                "fencing tokens of {key} do not grow: {earlier}, and later {later}"
            ),
            Self::ToldLate { hold, told, late } => {
                let (told, late) = (Seconds(*told), Seconds(*late));
                write!(
                    f,
                    "told of the loss at {told}, {late} after the end: {hold}"
                )
            }
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            from,
            until,
            ..
        } = self;
        let (from, until) = (Seconds(*from), Seconds(*until));
        write!(f, "{client} from {from} until {until}")
    }
}

impl fmt::Display for FencedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with the token {}", self.hold, self.fence)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000_000;
        write!(f, "{}.{:09} s", self.0 / SECOND, self.0 % SECOND)
    }
}
