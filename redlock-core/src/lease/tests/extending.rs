//! Extensions by another ttl than the lock's own.

use super::*;

fn ttl(millis: u64) -> Ttl {
    Ttl::new(MS(millis)).unwrap()
}

#[test]
fn a_longer_extension_is_valid_for_its_ttl_less_its_drift() {
    let mut driven = Driven::held();
    driven.config().validity = Validity::new(ttl(1000), Drift::new(10, MS(100))).unwrap();
    driven.run(|lease| lease.extend_for(at(100), ttl(3000)));
    assert!(
        matches!(driven.last().operation, Operation::Extend { ttl: it, .. } if it == ttl(3000))
    );
    driven.reply(at(101), &[Granted; 3]);
    // 3000 ms less 30 ms and 100 ms.
    assert_eq!(driven.told, extended(at(100 + 2870)));
    assert_eq!(driven.lease.valid_until(at(101)), Some(at(100 + 2870)));
}

#[test]
fn a_node_that_would_have_dropped_or_kept_the_key_is_judged() {
    let mut driven = Driven::held();
    driven.timeout(at(300));
    let round = driven.sent[0].round;
    let judge = |driven: &Driven, now, remaining| {
        let lease = &driven.lease;
        lease.judge_remaining(at(now), round, MS(remaining))
    };
    let needed = MS(590);
    let too_short = Some(ExpiryAnomaly::TooShort { needed });
    let longest = ttl(1000);
    assert_eq!(judge(&driven, 310, 589), too_short, "valid until 900");
    assert_eq!(judge(&driven, 310, 590), None);
    assert_eq!(judge(&driven, 310, 2000), None, "clocks drift");
    let too_long = Some(ExpiryAnomaly::TooLong { longest });
    assert_eq!(judge(&driven, 310, 2001), too_long);
    // A reply after the verdict is judged by the validity before the extension.
    driven.reply(at(310), &[Granted; 3]);
    assert_eq!(judge(&driven, 310, 589), too_short);
    driven.run(|lease| lease.extend(at(400)));
    assert_eq!(judge(&driven, 410, 1), None, "another extension came since");
}
