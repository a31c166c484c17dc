//! The checker: what was held when, by whose clock, and which of it must not have been.

use std::fmt;

use redlock_core::FencingToken;

use crate::{
    clock::{MILLI, SECOND},
    trace::Seconds,
};

/// How long after it was sent a request may still be carried out, in true time. Longer than the
/// longest ttl, so that requests outlive their lease and their keys.
pub(crate) const MAX_LATE: u64 = 60 * SECOND;

#[derive(Default)]
pub(crate) struct History {
    leases: Vec<Record>,
    /// For each key, who gained validity and was not seen without it since.
    holds: Vec<Vec<Hold>>,
    /// For each key, the largest fencing token that was acquired.
    fences: Vec<Option<FencingToken>>,
    violations: Vec<Violation>,
}

struct Record {
    ttl: u64,
    ended_at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    pub(crate) lease: usize,
    /// When it was acquired, in true time.
    pub(crate) since: u64,
}

/// Something that must not happen.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) kind: Breach,
    /// A broken assumption, or the mutant, accounts for it.
    pub(crate) explained: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Breach {
    /// Two leases of one key are valid at the same time, each by its own client's clock.
    TwoHolders { key: usize, old: Hold, new: Hold },
    /// A later acquisition has a fencing token that is not larger.
    FenceWentBack {
        key: usize,
        old: FencingToken,
        new: FencingToken,
    },
    /// A key lives longer than its lease, its last request's delay and its ttl together.
    KeyOutlived { key: usize, master: usize },
    /// A validity reaches beyond `max_hold` and one validity more.
    HeldTooLong { key: usize, client: usize },
    /// A lease that is not closed will never be woken.
    NoTimeout { client: usize },
    /// After `handle_timeout(t)`, the next timeout is not later than `t`.
    TimeoutNotLater { client: usize },
    /// With all faults over, a key could not be acquired.
    Stuck { key: usize },
}

impl History {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            holds: vec![Vec::new(); keys],
            fences: vec![None; keys],
            ..Self::default()
        }
    }

    /// Notes a new lease, and returns its number.
    pub(crate) fn begin(&mut self, ttl: u64) -> usize {
        self.leases.push(Record {
            ttl,
            ended_at: None,
        });
        self.leases.len() - 1
    }

    /// Notes that keys of a lease may live for this ttl by now.
    pub(crate) fn note_ttl(&mut self, lease: usize, ttl: u64) {
        let record = &mut self.leases[lease];
        record.ttl = record.ttl.max(ttl);
    }

    /// Notes that a lease was closed, or forgotten by a client that crashed.
    pub(crate) fn end(&mut self, at: u64, lease: usize) {
        self.leases[lease].ended_at.get_or_insert(at);
    }

    pub(crate) fn has_ended(&self, lease: usize) -> bool {
        self.leases[lease].ended_at.is_some()
    }

    /// Returns the others that gained validity of this key, less those that have lost it.
    pub(crate) fn others(
        &mut self,
        key: usize,
        lease: usize,
        is_valid: impl Fn(&Hold) -> bool,
    ) -> Vec<Hold> {
        self.holds[key].retain(|hold| hold.lease == lease || is_valid(hold));
        let others = self.holds[key].iter().filter(|hold| hold.lease != lease);
        others.copied().collect()
    }

    /// Notes that a lease gained validity; returns since when it has it.
    pub(crate) fn hold(&mut self, at: u64, key: usize, client: usize, lease: usize) -> Hold {
        let holds = &mut self.holds[key];
        if let Some(hold) = holds.iter().find(|hold| hold.lease == lease) {
            return *hold;
        }
        let hold = Hold {
            client,
            lease,
            since: at,
        };
        holds.push(hold);
        hold
    }

    /// Notes an acquired fence; returns the one that it should have surpassed and did not.
    pub(crate) fn fence(&mut self, key: usize, fence: FencingToken) -> Option<FencingToken> {
        let largest = self.fences[key];
        self.fences[key] = largest.max(Some(fence));
        largest.filter(|&largest| largest >= fence)
    }

    /// Returns whether a lease's key may still live: its requests can arrive for `MAX_LATE` after
    /// the lease has ended, then the key lives for the ttl by a clock that may be 1 % slow.
    pub(crate) fn may_live(&self, at: u64, lease: usize) -> bool {
        let Record { ttl, ended_at } = self.leases[lease];
        let latest = |ended_at| ended_at + MAX_LATE + ttl + ttl / 100 + MILLI;
        ended_at.is_none_or(|ended_at| at <= latest(ended_at))
    }

    pub(crate) fn violation(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn leases(&self) -> u64 {
        self.leases.len() as u64
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} s: {}", Seconds(self.at), self.kind)
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoHolders { key, old, new } => write!(
                f,
                "two holders of key {key}: client {} since {} s and client {} since {} s",
                old.client,
                Seconds(old.since),
                new.client,
                Seconds(new.since)
            ),
            Self::FenceWentBack { key, old, new } => {
                write!(f, "fence {new} of key {key} was acquired after {old}")
            }
            Self::KeyOutlived { key, master } => {
                write!(f, "key {key} on master {master} outlived its lease")
            }
            Self::HeldTooLong { key, client } => {
                write!(f, "client {client} holds key {key} beyond max_hold")
            }
            Self::NoTimeout { client } => {
                write!(f, "the open lease of client {client} has no timeout")
            }
            Self::TimeoutNotLater { client } => {
                write!(f, "the timeout of client {client} did not move on")
            }
            Self::Stuck { key } => write!(f, "key {key} stays locked with all faults over"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_live_for_its_ttl_after_the_last_straggler() {
        let mut history = History::new(1);
        let lease = history.begin(10 * SECOND);
        assert!(history.may_live(3_600 * SECOND, lease), "it is still open");
        history.end(SECOND, lease);
        let latest = SECOND + MAX_LATE + 10 * SECOND + SECOND / 10 + MILLI;
        assert!(history.may_live(latest, lease));
        assert!(!history.may_live(latest + 1, lease));
    }

    #[test]
    fn those_who_lost_their_validity_are_not_in_the_way() {
        let mut history = History::new(1);
        history.hold(1, 0, 7, 0);
        assert_eq!(history.others(0, 1, |_| true).len(), 1);
        assert_eq!(history.others(0, 0, |_| true).len(), 0, "one's own");
        assert_eq!(history.others(0, 1, |_| false).len(), 0);
        assert_eq!(history.others(0, 1, |_| true).len(), 0, "gone for good");
    }

    #[test]
    fn equal_fences_went_back_too() {
        let mut history = History::new(1);
        let fence = FencingToken::new;
        assert_eq!(history.fence(0, fence(5)), None);
        assert_eq!(history.fence(0, fence(5)), Some(fence(5)));
        assert_eq!(history.fence(0, fence(4)), Some(fence(5)));
        assert_eq!(history.fence(0, fence(6)), None);
    }
}
