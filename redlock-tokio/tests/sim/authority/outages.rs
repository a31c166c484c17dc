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
    ended: Vec<Outage>,
    /// What was too long already when another failover came, or the faults ended.
    cut_off: Vec<Outage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) since: u64,
    pub(super) reign: Reign,
    /// When a majority of the members knew the new owner.
    pub(super) named_at: Option<u64>,
    /// How many locks were acquired, when the old owner had certainly lost its vote.
    pub(super) acquired: Option<u64>,
    /// How long the rules keep the new owner from voting once it is named.
    pub(super) cost: u64,
    /// A longer way to a member, on average, makes so many of its answers late that confirmations end.
    pub(super) longest_way_to_member: u64,
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

impl Open {
    /// Returns what it is like by now. `None` if no majority has named the new owner yet.
    fn so_far(&self, at: u64, has_slow_network: bool) -> Option<Outage> {
        let named_after = self.named_at? - self.since;
        Some(Outage {
            length: at - self.since,
            expected: named_after + self.cost,
            has_slow_network,
        })
    }
}

/// How much longer than the rules cost an outage may be, until the next users come and the next attempts are made. On a
/// slow network many attempts fail, because answers take longer than `node_timeout`.
const LONGEST_EXCESS: u64 = 5 * SECOND;

impl Outage {
    /// Returns how much longer it was than the rules cost.
    fn excess(&self) -> u64 {
        self.length.saturating_sub(self.expected)
    }

    fn is_too_long(&self) -> bool {
        self.excess() > LONGEST_EXCESS
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
            cost: 0,
            longest_way_to_member: 0,
        });
    }

    /// Drops the outage that has not ended. It counts if it is too long already.
    pub(super) fn cut_off(&mut self, at: u64, has_slow_network: bool) {
        let open = self.open.take();
        let outage = open.and_then(|it| it.so_far(at, has_slow_network));
        self.cut_off.extend(outage.filter(Outage::is_too_long));
    }

    /// Ends the outage.
    pub(super) fn end(&mut self, at: u64, has_slow_network: bool) {
        let open = self.open.take();
        let outage = open.and_then(|it| it.so_far(at, has_slow_network));
        self.ended.extend(outage);
    }

    /// Returns the outages that were too long.
    pub(crate) fn too_long(&self) -> Vec<Violation> {
        let of_failover = self.ended.iter().chain(&self.cut_off);
        let too_long = of_failover.filter(|it| it.is_too_long() && !it.has_slow_network);
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
        self.cut_off.extend(&other.cut_off);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.cut_off.is_empty()
    }
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = |of: fn(&Outage) -> u64| {
            let mut all: Vec<_> = self.ended.iter().map(of).collect();
            all.sort_unstable();
            if all.is_empty() {
                return "none".to_owned();
            }
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
            "{}, {} of them on a slow network, and {} that did not end: {}; max_ttl, window and what the authority \
             took: {}; longer by: {}",
            self.ended.len(),
            self.ended.iter().filter(|it| it.has_slow_network).count(),
            self.cut_off.len(),
            figures(|it| it.length),
            figures(|it| it.expected),
            figures(Outage::excess)
        )
    }
}
