use std::{collections::BTreeSet, time::Duration};

use redlock_core::Timestamp;

use crate::{
    node::{Reports, redis::address::Endpoint},
    sync::Mutex,
};

/// Notes when each configured address of an authority was heard of, again and again.
///
/// If one of the addresses leads to another authority, that must be known before the first vote. So the core confirms
/// no first owner before each address has answered, or was found not to answer.
pub(super) struct RollCall {
    addresses: BTreeSet<Endpoint>,
    round: Mutex<Option<Round>>,
}

struct Round {
    began_at: Timestamp,
    /// Each address that was heard of was asked then or later.
    asked_at: Timestamp,
    missing: BTreeSet<Endpoint>,
}

impl RollCall {
    pub(super) fn new(addresses: &[Endpoint]) -> Self {
        Self {
            addresses: addresses.iter().cloned().collect(),
            round: Mutex::new(None),
        }
    }

    /// Notes that the answer to a question from `asked_at` was delivered, or that the address does not answer now.
    /// Ends the roll call if that was the last address. Returns whether it is over.
    pub(super) fn note(&self, reports: &Reports, address: &Endpoint, asked_at: Timestamp) -> bool {
        let over = self.hear(reports.now(), reports.interval(), address, asked_at);
        if let Some(asked_at) = over {
            reports.end_roll_call(asked_at);
        }
        over.is_some()
    }

    /// Returns the date of the roll call if it is over. An address that takes longer than `interval` counts as silent.
    fn hear(
        &self,
        now: Timestamp,
        interval: Duration,
        address: &Endpoint,
        asked_at: Timestamp,
    ) -> Option<Timestamp> {
        let mut current = self.round.lock();
        let passed = |round: &Round| now.saturating_duration_since(round.began_at);
        // Within an interval or little more, each address is asked again.
        current.take_if(|round| passed(round) >= 2 * interval);
        let round = current.get_or_insert_with(|| Round {
            began_at: now,
            asked_at,
            missing: self.addresses.clone(),
        });
        round.missing.remove(address);
        round.asked_at = round.asked_at.min(asked_at);
        let is_over = round.missing.is_empty() || passed(round) >= interval;
        is_over.then_some(round.asked_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn it_waits_for_each_address_in_each_round_and_no_longer_than_an_interval() {
        let [a, b, c] = ["a:1", "b:1", "c:1"].map(|it| Endpoint::parse(it, None).unwrap());
        let both = RollCall::new(&[a.clone(), b.clone()]);
        let hear = |now, address, asked| both.hear(at(now), INTERVAL, address, at(asked));
        assert_eq!(hear(10, &a, 5), None);
        assert_eq!(hear(11, &a, 10), None);
        assert_eq!(hear(12, &c, 9), None, "not a configured one");
        assert_eq!(hear(20, &b, 8), Some(at(5)));
        assert_eq!(hear(30, &c, 25), Some(at(5)), "still over");
        // The next round, in which one is silent.
        assert_eq!(hear(2010, &a, 2005), None);
        assert_eq!(hear(3009, &a, 3005), None);
        assert_eq!(hear(3010, &a, 3006), Some(at(2005)));
    }
}
