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
    /// Whether the fencing token was compared with those before it.
    fence_is_settled: bool,
    /// Whether a holder that nobody told was reported.
    not_told: bool,
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
            fence_is_settled: false,
            not_told: false,
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

    pub(super) fn settle_fence(&mut self) {
        self.fence_is_settled = true;
    }

    pub(super) fn keys(&self) -> &[String] {
        &self.grant.keys
    }

    pub(super) fn granted_at(&self) -> u64 {
        self.grant.at
    }

    pub(super) fn valid_until(&self) -> u64 {
        self.grant.valid_until
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

    /// Returns the fencing token that is still to be compared with those before it.
    pub(super) fn unsettled_fence(&self) -> Option<FencingToken> {
        let fence = self.grant.fence.filter(|_| self.was_valid());
        fence.filter(|_| !self.fence_is_settled)
    }

    /// Returns whether nothing that happens after this time can concern the hold.
    pub(super) fn is_over_by(&self, horizon: u64) -> bool {
        let Some(end) = self.end else { return false };
        let told = match end.how {
            End::Lost { told } => told,
            End::Released | End::Died => 0,
        };
        end.at.max(told).max(self.grant.at) <= horizon
    }

    pub(super) fn told_late(&self, tolerance: u64, stops: &Stops) -> Option<Violation> {
        let Some(Ended {
            how: End::Lost { told },
            ..
        }) = self.end
        else {
            return None;
        };
        let late = self.lateness(told, stops);
        let is_new = late > tolerance && !self.not_told;
        is_new.then(|| Violation::ToldLate {
            hold: self.hold(),
            told,
            late,
        })
    }

    /// Returns a violation, once, if the holder should have been told of its loss by now and was not.
    pub(super) fn not_told(
        &mut self,
        now: u64,
        tolerance: u64,
        stops: &Stops,
    ) -> Option<Violation> {
        let is_owed = self.grant.watches && self.end.is_none() && !self.not_told;
        let is_late = is_owed && self.lateness(now, stops) > tolerance;
        self.not_told |= is_late;
        is_late.then(|| Violation::NotTold {
            hold: self.hold(),
            by: now,
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

    /// Returns for how long the holder's process ran after the end of validity, up to this time. A holder cannot be
    /// told before it has the lock.
    fn lateness(&self, now: u64, stops: &Stops) -> u64 {
        let due = self.grant.valid_until.max(self.grant.at);
        stops.running_time(&self.grant.client, due, now)
    }
}
