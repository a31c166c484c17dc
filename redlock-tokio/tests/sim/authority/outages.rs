//! How long locks cannot be acquired after a failover.

use std::{fmt, time::Duration};

use super::council::Reign;
use crate::{
    clock::SECOND,
    trace::Seconds,
    violation::{Kind, Violation},
};

/// What the failovers of one seat cost that has the only vote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outages {
    pub(super) open: Option<Open>,
    /// In nanoseconds.
    pub(super) ended: Vec<Outage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) since: u64,
    pub(super) reign: Reign,
    /// When a majority of the members knew the new owner.
    pub(super) named_at: Option<u64>,
    /// How many locks were acquired, when the old owner had certainly lost its vote.
    pub(super) acquired: Option<u64>,
    /// Some way in the network is so long that attempts fail for that reason.
    pub(super) has_slow_network: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// From the promotion until the next lock by the new owner.
    pub(super) length: u64,
    /// What the authority took, and the longest ttl and the window.
    pub(super) expected: u64,
    /// Attempts failed because of the network.
    pub(super) has_slow_network: bool,
}

/// How much longer than the rules cost an outage may be, until the next users come and the next attempts are made. On a
/// slow network many attempts fail, because answers take longer than `node_timeout`.
const LONGEST_EXCESS: u64 = 5 * SECOND;

impl Outage {
    /// Returns how much longer it was than the rules cost.
    fn excess(&self) -> u64 {
        self.length.saturating_sub(self.expected)
    }
}

impl Outages {
    /// Notes that an owner was promoted. An outage that has not ended does not count: two failovers add up.
    pub(super) fn begin(&mut self, at: u64, reign: Reign) {
        self.open = Some(Open {
            since: at,
            reign,
            named_at: None,
            acquired: None,
            has_slow_network: false,
        });
    }

    /// Drops the outage that has not ended.
    pub(super) fn cancel(&mut self) {
        self.open = None;
    }

    /// Ends the outage.
    pub(super) fn end(&mut self, outage: Outage) {
        self.open = None;
        self.ended.push(outage);
    }

    /// Returns the outages that were too long.
    pub(crate) fn too_long(&self) -> Vec<Violation> {
        let of_failover = self.ended.iter().filter(|it| !it.has_slow_network);
        let too_long = of_failover.filter(|it| it.excess() > LONGEST_EXCESS);
        too_long
            .map(|it| {
                let (length, expected) = (Seconds(it.length), Seconds(it.expected));
                let text =
                    format!("no lock for {length} s after a failover that costs {expected} s");
                Violation::new(Kind::Service, text)
            })
            .collect()
    }

    /// Adds those of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ended.extend(&other.ended);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
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
            figures(Outage::excess)
        )
    }
}
