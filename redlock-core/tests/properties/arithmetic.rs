//! Timestamps, validity, drift, quarantine: over the whole range of each.

use std::time::Duration;

use proptest::{prelude::*, strategy::Union};
use redlock_core::{Drift, KeepAlive, Quarantine, Timestamp, Ttl, Validity};

use crate::check;

/// Whole numbers with as many small and large ones as middling ones, and both ends.
fn wide(max: u64) -> impl Strategy<Value = u64> {
    let ends = Union::new([0, 1, max - 1, max].map(Just));
    let magnitudes =
        (0..64u32, any::<u64>()).prop_map(move |(shift, bits)| (bits >> shift).min(max));
    prop_oneof![1 => ends, 8 => magnitudes]
}

fn timestamps() -> impl Strategy<Value = Timestamp> {
    wide(u64::MAX).prop_map(Timestamp::from_nanos)
}

fn durations() -> impl Strategy<Value = Duration> {
    let nanos = wide(u64::MAX).prop_map(Duration::from_nanos);
    let seconds = wide(u64::MAX).prop_map(Duration::from_secs);
    prop_oneof![4 => nanos, 1 => seconds, 1 => Just(Duration::MAX)]
}

fn ttls() -> impl Strategy<Value = Ttl> {
    wide(Ttl::MAX.as_millis())
        .prop_map(|millis| Ttl::new(Duration::from_millis(millis.max(1))).expect("within range"))
}

/// The nanoseconds at which time saturates.
fn last() -> u128 {
    Timestamp::MAX.as_nanos().into()
}

fn drifts() -> impl Strategy<Value = Drift> {
    let common = (0..1000u16, 0..10_000_000u64)
        .prop_map(|(per_mille, fixed)| Drift::new(per_mille, Duration::from_nanos(fixed)));
    let any =
        (any::<u16>(), durations()).prop_map(|(per_mille, fixed)| Drift::new(per_mille, fixed));
    prop_oneof![4 => common, 1 => any, 1 => Just(Drift::default())]
}

#[test]
fn timestamps_saturate_and_otherwise_add_up() {
    check(
        2000,
        &(timestamps(), durations(), timestamps()),
        |(time, span, other)| {
            let exact = u128::from(time.as_nanos());
            let sum = (exact + span.as_nanos()).min(last());
            prop_assert_eq!(u128::from(time.saturating_add(span).as_nanos()), sum);
            let difference = exact.saturating_sub(span.as_nanos());
            prop_assert_eq!(u128::from(time.saturating_sub(span).as_nanos()), difference);
            let since = time.saturating_duration_since(other);
            prop_assert_eq!(other.saturating_add(since), time.max(other));
            Ok(())
        },
    );
}

#[test]
fn a_ttl_is_the_whole_milliseconds_of_a_duration() {
    check(2000, &durations(), |duration| {
        match Ttl::new(duration) {
            Ok(ttl) => {
                prop_assert_eq!(u128::from(ttl.as_millis()), duration.as_millis());
                prop_assert!(ttl.as_millis() >= 1 && ttl <= Ttl::MAX);
                prop_assert!(ttl.as_duration() <= duration, "never longer than asked for");
            }
            Err(error) if error.to_string().contains("shorter") => {
                prop_assert!(duration < Duration::from_millis(1));
            }
            Err(_) => prop_assert!(duration > Ttl::MAX.as_duration()),
        }
        Ok(())
    });
}

#[test]
fn the_drift_allowance_is_exact_and_saturates() {
    let inputs = (any::<u16>(), durations(), ttls());
    check(2000, &inputs, |(per_mille, fixed, ttl)| {
        let part = ttl.as_duration() * u32::from(per_mille) / 1000;
        let exact = fixed.checked_add(part).unwrap_or(Duration::MAX);
        prop_assert_eq!(Drift::new(per_mille, fixed).allowance(ttl), exact);
        Ok(())
    });
}

/// So a key that was set at `start` or later outlasts it on any clock within the allowance, and a longer ttl is valid for
/// longer.
#[test]
fn validity_is_the_ttl_less_the_drift_from_the_start_on() {
    check(
        4000,
        &(ttls(), drifts(), timestamps()),
        |(ttl, drift, start)| {
            let (life, allowance) = (ttl.as_duration(), drift.allowance(ttl));
            let Ok(validity) = Validity::new(ttl, drift) else {
                prop_assert!(allowance >= life, "refused only if nothing is left");
                return Ok(());
            };
            let is_empty = validity.span().is_zero();
            prop_assert!(!is_empty, "an acquisition without delay holds");
            prop_assert_eq!(validity.span() + allowance, life);
            prop_assert_eq!(validity.ttl(), ttl);
            let until = u128::from(validity.until(start).as_nanos());
            let exact = u128::from(start.as_nanos()) + life.as_nanos() - allowance.as_nanos();
            prop_assert_eq!(until, exact.min(last()));
            Ok(())
        },
    );
}

#[test]
fn no_node_votes_before_the_longest_ttl_has_passed_since_its_restart() {
    // On the server's wall clock, of which Redis subtracts whole seconds; the client reads its own
    // clock after the answer came. All clocks run alike: the allowance is for those that do not.
    let inputs = (
        ttls(),
        drifts(),
        wide(1 << 60),
        wide(1 << 60),
        wide(1 << 40),
    );
    check(4000, &inputs, |(max_ttl, drift, restart, up, latency)| {
        const SECOND: u64 = 1_000_000_000;
        let asked = restart + up;
        let uptime = Duration::from_secs(asked / SECOND - restart / SECOND);
        let answered = Timestamp::from_nanos(asked + latency);
        let quarantine = Quarantine::new(max_ttl, drift);
        let eligible_at = quarantine.eligible_at(answered, uptime);
        let forgotten = Timestamp::from_nanos(restart).saturating_add(quarantine.length());
        prop_assert!(eligible_at >= forgotten);
        prop_assert!(eligible_at >= answered);
        prop_assert!(quarantine.length() >= max_ttl.as_duration());
        // It costs no more than what cannot be known: two seconds of flooring and the latency.
        let slack = Duration::from_nanos(latency + 2 * SECOND);
        prop_assert!(eligible_at <= forgotten.saturating_add(slack).max(answered));
        Ok(())
    });
}

#[test]
fn quarantine_takes_any_uptime() {
    check(
        2000,
        &(ttls(), drifts(), timestamps(), durations()),
        |(ttl, drift, now, uptime)| {
            let quarantine = Quarantine::new(ttl, drift);
            let eligible_at = quarantine.eligible_at(now, uptime);
            prop_assert!(eligible_at >= now);
            prop_assert!(eligible_at <= now.saturating_add(quarantine.length()));
            let later = quarantine.eligible_at(now, uptime.saturating_add(Duration::from_secs(1)));
            // A server that has been up for longer votes no later.
            prop_assert!(later <= eligible_at);
            Ok(())
        },
    );
}

#[test]
fn renewal_is_due_within_the_validity_and_before_max_hold() {
    let inputs = (
        ttls(),
        drifts(),
        durations(),
        durations(),
        timestamps(),
        wide(1 << 50),
    );
    check(
        4000,
        &inputs,
        |(ttl, drift, interval, max_hold, acquired_at, after)| {
            let Ok(validity) = Validity::new(ttl, drift) else {
                return Ok(());
            };
            let default = KeepAlive::default_interval(validity);
            prop_assert!(default <= validity.span() / 2, "one renewal may fail");
            prop_assert!(default <= ttl.as_duration() / 3);
            for interval in [interval, default] {
                let Ok(keep_alive) = KeepAlive::every(interval, max_hold, validity) else {
                    prop_assert!(interval.is_zero() || interval >= validity.span());
                    continue;
                };
                let start = acquired_at.saturating_add(Duration::from_nanos(after));
                let limit = acquired_at.saturating_add(max_hold);
                prop_assert_eq!(keep_alive.allows(acquired_at, start), start < limit);
                if let Some(due) = keep_alive.next_extension(acquired_at, start) {
                    prop_assert!(start < due && due < validity.until(start) && due < limit);
                }
                if let Some(due) = keep_alive.next_try(acquired_at, start) {
                    let delay = due.saturating_duration_since(start);
                    prop_assert!(delay >= Duration::from_millis(1), "{:?}", delay);
                    prop_assert!(due < limit);
                }
            }
            Ok(())
        },
    );
}
