//! Retry delays: within bounds, with room for the attempt, and uniform.

use std::time::Duration;

use proptest::prelude::*;
use redlock_core::{
    Drift, Eligibility, KeepAlive, Lease, LeaseConfig, NodeId, Nonce, Quorum, Reply, RetrySchedule,
    Timestamp, Ttl, Validity,
};

use crate::check;

fn nanos() -> impl Strategy<Value = u64> {
    (0..64u32, any::<u64>()).prop_map(|(shift, bits)| bits >> shift)
}

#[test]
fn delays_are_within_bounds_and_leave_room_for_an_attempt() {
    let inputs = (
        [nanos(), nanos()],
        nanos(),
        (nanos(), nanos()),
        (proptest::option::of(0..5u32), 1..6u32),
        any::<[u64; 2]>(),
    );
    check(
        8000,
        &inputs,
        |(mut range, budget, (start, after), (limit, attempts), mut random)| {
            range.sort_unstable();
            random.sort_unstable();
            let [shortest, longest] = range.map(Duration::from_nanos);
            let budget = Duration::from_nanos(budget);
            let Ok(mut schedule) = RetrySchedule::new(shortest..=longest) else {
                prop_assert!(shortest.is_zero());
                return Ok(());
            };
            if let Some(limit) = limit {
                schedule = schedule.with_max_attempts(limit);
            }
            let start = Timestamp::from_nanos(start);
            let now = start.saturating_add(Duration::from_nanos(after));
            let deadline = start.saturating_add(budget);

            let next = |random| schedule.next_attempt(deadline, attempts, now, random);
            let left = deadline.saturating_duration_since(now);
            let may_go_on = limit.is_none_or(|limit| attempts < limit.max(1));
            if !may_go_on || left < shortest.saturating_mul(2) {
                prop_assert_eq!(next(random[0]), None);
                return Ok(());
            }
            let cut = longest.min(left - shortest);
            prop_assert_eq!(next(0), Some(now.saturating_add(shortest)));
            prop_assert_eq!(next(u64::MAX), Some(now.saturating_add(cut)));
            let [less, more] = random.map(|random| next(random).expect("there is time left"));
            for at in [less, more] {
                let delay = at.saturating_duration_since(now);
                prop_assert!(shortest <= delay && delay <= longest);
                // Room for the attempt.
                prop_assert!(at.saturating_add(shortest) <= deadline);
            }
            // Monotone in the random bits, so no value is preferred.
            prop_assert!(less <= more);
            Ok(())
        },
    );
}

/// Pearson's statistic against a uniform distribution over 32 buckets.
fn chi_square(buckets: &[u32; 32]) -> f64 {
    let expected = f64::from(buckets.iter().sum::<u32>()) / 32.0;
    let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
    buckets.iter().map(square).sum()
}

/// Beyond this, 31 degrees of freedom are not uniform: by chance, once in a million.
const CRITICAL: f64 = 82.0;

fn bucket(delay: Duration, shortest: Duration, span: Duration) -> usize {
    let offset = (delay - shortest).as_nanos() * 32 / (span.as_nanos() + 1);
    usize::try_from(offset).expect("below 32")
}

/// The first retry delays of leases that fail together, by nonce and attempt.
fn lease_delay(nonce: u128, attempts: u32) -> Duration {
    let delays = Duration::from_millis(20)..=Duration::from_millis(200);
    let ttl = Ttl::new(Duration::from_secs(1)).expect("a second");
    let config = LeaseConfig::new(
        Quorum::majority(1).expect("one node"),
        Validity::new(ttl, Drift::default()).expect("longer than its drift"),
        RetrySchedule::new(delays).expect("not empty"),
        KeepAlive::on_demand(Duration::MAX),
    );
    let mut lease = Lease::new(config, Nonce::new(nonce));
    let node = NodeId::new(0).expect("the first");
    let mut now = Timestamp::ZERO;
    lease.acquire(now, Timestamp::MAX);
    loop {
        let round = lease.poll_transmit().expect("an attempt").round;
        lease.handle_reply(now, round, node, Reply::Denied, Eligibility::ALWAYS);
        lease.poll_transmit().expect("its release");
        let next = lease.poll_timeout().expect("an endless budget");
        if lease.attempts() == attempts {
            return next.saturating_duration_since(now);
        }
        now = next;
        lease.handle_timeout(now);
    }
}

#[test]
fn clients_that_failed_together_do_not_retry_together() {
    let (shortest, span) = (Duration::from_millis(20), Duration::from_millis(180));
    // Nonces that differ in few bits are the hardest to tell apart; real ones are random.
    let low = |number: u32| u128::from(number);
    let high = |number: u32| u128::from(number) << 96;
    let constant = |_| 0xdead_beef;
    for (name, nonce, attempts) in [
        ("low bits", low as fn(u32) -> u128, 1),
        ("high bits", high, 1),
        ("second attempts", low, 2),
    ] {
        let mut buckets = [0; 32];
        for number in 0..8000 {
            buckets[bucket(lease_delay(nonce(number), attempts), shortest, span)] += 1;
        }
        let statistic = chi_square(&buckets);
        assert!(statistic < CRITICAL, "{name}: {statistic} {buckets:?}");
    }
    // The negative control: clients that share their bits are found out.
    let mut buckets = [0; 32];
    for number in 0..8000 {
        buckets[bucket(lease_delay(constant(number), 1), shortest, span)] += 1;
    }
    assert!(chi_square(&buckets) > CRITICAL, "{buckets:?}");
}
