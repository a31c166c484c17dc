use redlock_tokio::FencingToken;

use super::{
    grant::{End, Grant, HoldId},
    stops::Stops,
    violation::{Hold, Violation},
};

/// All news of one hold.
#[derive(Clone, Debug)]
pub(super) struct Record {
    id: HoldId,
    grant: Grant,
    /// Since when it is shared.
    shared_from: Option<u64>,
    end: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    how: End,
    at: u64,
}

impl Record {
    pub(super) fn new(id: HoldId, grant: Grant) -> Self {
        Self {
            id,
            shared_from: grant.is_shared.then_some(grant.at),
            grant,
            end: None,
        }
    }

    pub(super) fn extend(&mut self, valid_until: u64) {
        self.grant.valid_until = self.grant.valid_until.max(valid_until);
    }

    pub(super) fn share(&mut self, at: u64) {
        self.shared_from.get_or_insert(at);
    }

    pub(super) fn end(&mut self, how: End, at: u64) {
        assert!(self.end.is_none(), "{:?} has ended already", self.id);
        self.end = Some(Ended { how, at });
    }

    pub(super) fn keys(&self) -> &[String] {
        &self.grant.keys
    }

    pub(super) fn granted_at(&self) -> u64 {
        self.grant.at
    }

    /// Returns whether the hold was valid at any instant.
    pub(super) fn was_valid(&self) -> bool {
        self.grant.at < self.grant.valid_until && self.grant.at <= self.until()
    }

    /// Returns whether not both are shared at this time.
    pub(super) fn excludes(&self, other: &Self, at: u64) -> bool {
        let is_shared = |it: &Self| it.shared_from.is_some_and(|from| from <= at);
        !(is_shared(self) && is_shared(other))
    }

    /// Returns the end of the time in which the hold was valid.
    pub(super) fn until(&self) -> u64 {
        let end = self.end.map_or(u64::MAX, |it| it.at);
        self.grant.valid_until.min(end)
    }

    pub(super) fn fence(&self) -> Option<FencingToken> {
        self.grant.fence.filter(|_| self.was_valid())
    }

    /// Returns a violation if the holder was told of its loss too late: its process had run for longer than this after the end
    /// of validity. A holder cannot be told before it has the lock.
    pub(super) fn told_late(&self, tolerance: u64, stops: &Stops) -> Option<Violation> {
        let Some(Ended {
            how: End::Lost { told },
            ..
        }) = self.end
        else {
            return None;
        };
        let due = self.grant.valid_until.max(self.grant.at);
        let late = stops.running_time(&self.grant.client, due, told);
        (late > tolerance).then(|| Violation::ToldLate {
            hold: self.hold(),
            told,
            late,
        })
    }

    pub(super) fn hold(&self) -> Hold {
        Hold {
            id: self.id,
            client: self.grant.client.clone(),
            from: self.grant.at,
            until: self.until(),
        }
    }
}
