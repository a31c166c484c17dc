//! The authority of a world, its numbers, and the rules that clients keep.

use std::time::Duration;

use redlock_tokio::{Durability, RedlockBuilder};

use super::layout::Layout;
use crate::{rng::Rng, scale::Scale};

/// What names the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sentinels of this many groups.
    Sentinels { groups: usize },
    /// The nodes of a cluster.
    Cluster,
}

/// A rule that keeps two owners from voting for two locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An owner votes when every lock by an earlier one is over.
    Settling,
    /// A confirmation counts for a window.
    Window,
}

/// Which authority a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    pub(crate) kind: Kind,
    /// The rule that is taken out, if one is.
    pub(crate) without: Option<Rule>,
}

impl Owners {
    /// Returns the numbers of a world with this authority.
    pub(crate) fn scale(&self, scale: Scale, rng: &mut Rng) -> Scale {
        // A window is a part of it, and each member is asked three times in a window.
        let max_ttl = Duration::from_secs(rng.pick(&[3, 10]));
        let scale = Scale {
            servers: Layout::new(self.kind).servers(),
            max_ttl,
            think: max_ttl / 30,
            work: max_ttl / rng.pick(&[2, 8, 30]),
            ..scale
        };
        if self.without.is_none() {
            return scale;
        }
        // Locks that are held to the last, and wanted by all.
        let max_ttl = Duration::from_secs(3);
        Scale {
            processes: 4,
            users: 2,
            keys: 1,
            max_ttl,
            think: max_ttl / 30,
            work: max_ttl * 2 / 3,
            ..scale
        }
    }

    /// Returns how long a confirmation counts. The shortest ttl of a user is a quarter of the longest, and
    /// has room for three windows.
    pub(crate) fn window(max_ttl: Duration) -> Duration {
        max_ttl / 13
    }

    /// Sets what a process must know of the authority.
    pub(crate) fn configure(&self, builder: RedlockBuilder, max_ttl: Duration) -> RedlockBuilder {
        let builder = builder.confirmation_window(Self::window(max_ttl));
        if self.without == Some(Rule::Settling) {
            builder.durability(Durability::LosslessFailovers)
        } else {
            builder
        }
    }
}
