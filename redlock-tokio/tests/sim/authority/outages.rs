//! How long locks cannot be acquired after a failover.

use std::{fmt, time::Duration};

use super::{Kind, Owners, council::Reign};
use crate::{seen::Seen, world::World};

/// What the failovers of one seat cost that has the only vote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outages {
    open: Option<Open>,
    /// In nanoseconds.
    ended: Vec<Outage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Open {
    since: u64,
    reign: Reign,
    /// When a majority of the members knew the new owner.
    named_at: Option<u64>,
    /// How many locks were acquired, when the old owner had certainly lost its vote.
    acquired: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outage {
    /// From the promotion until the next lock by the new owner.
    length: u64,
    /// What the authority took, and the longest ttl and the window.
    expected: u64,
}

impl Outages {
    /// Notes that an owner was promoted. An outage that has not ended does not count: two failovers add up.
    pub(super) fn begin(&mut self, at: u64, reign: Reign) {
        self.open = Some(Open {
            since: at,
            reign,
            named_at: None,
            acquired: None,
        });
    }

    /// Adds those of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ended.extend(&other.ended);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }
}

impl World {
    /// Notes when a majority knows a new owner.
    pub(super) fn note_majorities(&mut self) {
        let at = self.at();
        self.with_authority(|it| {
            let majority = it.layout.members() / 2 + 1;
            if let Some(open) = &mut it.outages.open
                && open.named_at.is_none()
                && it.councils[0].supporters(0, open.reign) >= majority
            {
                open.named_at = Some(at);
            }
        });
    }

    /// Notes when locks are acquired again after a failover.
    pub(crate) fn note_service(&mut self) {
        let max_ttl = self.scale.max_ttl;
        let window = Owners::window(max_ttl).as_nanos() as u64;
        let network = &mut *self.network.lock();
        let (at, acquired) = (network.at(), network.seen.get(Seen::Acquired));
        let Some(state) = network.authorities.state() else {
            return;
        };
        let is_only_seat = state.owners.kind == Kind::Sentinels { groups: 1 };
        if !(state.owners.only_failovers && is_only_seat) {
            return;
        }
        let Some(open) = &mut state.outages.open else {
            return;
        };
        let Some(named_at) = open.named_at else {
            return;
        };
        // The last votes of the old owner are one window old by then, and their answers under way.
        if at < named_at + 2 * window {
            return;
        }
        if *open.acquired.get_or_insert(acquired) < acquired {
            let outage = Outage {
                length: at - open.since,
                expected: named_at - open.since + max_ttl.as_nanos() as u64 + window,
            };
            state.outages.ended.push(outage);
            state.outages.open = None;
        }
    }
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = |of: fn(&Outage) -> u64| {
            let mut all: Vec<_> = self.ended.iter().map(of).collect();
            all.sort_unstable();
            let of = |position: usize| Duration::from_nanos(all[position]).as_secs_f64();
            format!(
                "median {:.2} s, largest {:.2} s",
                of(all.len() / 2),
                of(all.len() - 1)
            )
        };
        if self.is_empty() {
            return write!(f, "none");
        }
        write!(
            f,
            "{}: {}; max_ttl, window and what the authority took: {}; longer by: {}",
            self.ended.len(),
            figures(|it| it.length),
            figures(|it| it.expected),
            figures(|it| it.length.saturating_sub(it.expected))
        )
    }
}
