use core::time::Duration;

use super::{gathering::GatheringPlan, key_watch::KeyWatch};
use crate::{AcquireFailure, RetrySchedule, Timestamp};

/// By how much the expiry of one key may differ from probe to probe: the server counts in whole
/// milliseconds, and the reply takes some time.
const EXPIRY_TOLERANCE: Duration = Duration::from_millis(5);

/// What a lease remembers from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RetryState {
    /// No attempt but the first starts at this time or later.
    pub(super) deadline: Timestamp,
    /// How the last attempt failed.
    pub(super) failure: Option<AcquireFailure>,
    /// How many attempts at a watched key have failed since another client was seen to have it.
    pub(super) collisions: u32,
    /// How many scheduled probes found the key taken.
    pub(super) probes: u32,
    /// How often the key was free, and another client was faster.
    pub(super) missed: u32,
    pub(super) unseen: UnseenOpenings,
    /// When to gather the keys, if the lock has several.
    pub(super) gathering: Option<GatheringPlan>,
}

/// Times at which the key was free, and which no notification announced: the key is taken by now, but
/// expires later than it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct UnseenOpenings {
    pub(super) count: u32,
    last: Option<Opening>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Opening {
    /// When the key expires that was found then.
    until: Timestamp,
    found_at: Timestamp,
}

impl RetryState {
    pub(super) const fn new(deadline: Timestamp, gathering: Option<GatheringPlan>) -> Self {
        Self {
            deadline,
            failure: None,
            collisions: 0,
            probes: 0,
            missed: 0,
            unseen: UnseenOpenings {
                count: 0,
                last: None,
            },
            gathering,
        }
    }

    /// Returns how often the lock was tried, by attempts or probes.
    pub(super) fn tries(&self, attempts: u32) -> u32 {
        attempts.saturating_add(self.probes)
    }

    /// Returns when to gather the keys, if that is of any use: another client has some of them.
    pub(super) fn gathers_at(&self) -> Option<Timestamp> {
        let is_contended = self.failure == Some(AcquireFailure::Contended);
        self.gathering.filter(|_| is_contended).map(|it| it.due)
    }

    /// Counts an attempt that failed because of another client. The first attempt finds the key taken, and has
    /// missed no opening.
    pub(super) fn handle_defeat(&mut self) {
        if self.failure.replace(AcquireFailure::Contended).is_some() {
            self.handle_missed();
        }
        self.collisions = self.collisions.saturating_add(1);
    }

    /// Notes that another client has the key, so the collisions before are settled. If they still counted, a
    /// client would back off for longer the longer it waits, and clients that come later would overtake it.
    pub(super) fn handle_taken(&mut self) {
        self.collisions = 0;
    }

    /// Counts an opening in which another client was faster.
    pub(super) fn handle_missed(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }
}

impl UnseenOpenings {
    /// Counts the opening that the last probe has found, if there is one. A client that gets
    /// notifications need not probe faster, and neither need one whose key stays with its holder.
    pub(super) fn after_probe(
        self,
        now: Timestamp,
        key_watch: &KeyWatch,
        retry: &RetrySchedule,
    ) -> Self {
        let Some(until) = key_watch.free_at().filter(|_| !key_watch.has_news()) else {
            return Self { count: 0, ..self };
        };
        let found = Some(Opening {
            until,
            found_at: now,
        });
        match self.last {
            None => Self {
                last: found,
                ..self
            },
            Some(last) if until > last.until.saturating_add(EXPIRY_TOLERANCE) => Self {
                count: self.count.saturating_add(1),
                last: found,
            },
            Some(last) => {
                let quiet = now.saturating_duration_since(last.found_at);
                let count = if retry.is_long(quiet) { 0 } else { self.count };
                Self { count, ..self }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, Quorum, Reply, lease::transmit::RoundId, said::MS};

    #[test]
    fn a_client_that_is_notified_need_not_probe_faster() {
        let at = |millis| Timestamp::ZERO.saturating_add(MS(millis));
        let retry = RetrySchedule::new(MS(20)..=MS(200)).unwrap();
        let node = NodeId::new(0).unwrap();
        let watch = |until| {
            let mut key_watch = KeyWatch::new(RoundId(1), Quorum::majority(1).unwrap(), 4);
            key_watch.handle_reply(node, Reply::Taken { until });
            key_watch
        };
        let mut unseen = UnseenOpenings::default();
        for second in 1..=3 {
            let now = at(1000 * second);
            unseen = unseen.after_probe(now, &watch(at(1000 * second + 900)), &retry);
        }
        assert_eq!(unseen.count, 2, "two other holders came unnoticed");
        let mut notified = watch(at(9000));
        notified.handle_freed(node);
        assert_eq!(unseen.after_probe(at(4000), &notified, &retry).count, 0);
    }
}
