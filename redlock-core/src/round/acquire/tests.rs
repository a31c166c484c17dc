use super::*;
use crate::{
    Drift, Eligibility, Reply, Ttl,
    said::{Said, node, quarantined},
};
use core::time::Duration;

use Reply::{Denied, Granted, Refused};

fn round(nodes: usize) -> Acquire {
    let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
    let validity = Validity::new(ttl, Drift::default()).unwrap();
    let quorum = Quorum::majority(nodes).unwrap();
    Acquire::new(quorum, validity, None, Timestamp::ZERO)
}

/// Feeds the replies of nodes 0, 1, 2 ... to an attempt; returns why it failed and after how many replies.
fn failure(replies: &[Said]) -> (AcquireFailure, usize) {
    let mut round = round(5);
    for (index, Said { reply, eligibility }) in replies.iter().copied().enumerate() {
        match round.handle_reply(Timestamp::ZERO, node(index), reply, eligibility) {
            Some(AcquireVerdict::Failed(failure)) => return (failure, index + 1),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    panic!("no verdict after {} replies", replies.len());
}

/// One failed, one in quarantine, one foreign: it is the foreign key that tips the scales.
#[test]
fn a_foreign_key_that_prevents_a_majority_is_named_before_a_quarantine() {
    let held_back = quarantined(Granted, Timestamp::from_nanos(9));
    let replies = [Refused.into(), held_back, Denied.into()];
    assert_eq!(failure(&replies), (AcquireFailure::Contended, 3));
}

#[test]
fn nodes_that_may_never_vote_are_no_quorum_and_no_quarantine_to_wait_for() {
    let never = |reply| Said {
        reply,
        eligibility: Eligibility::NEVER,
    };
    assert_eq!(failure(&[never(Granted); 5]), (AcquireFailure::NoQuorum, 3));
    let until = Timestamp::from_nanos(1);
    let replies = [never(Granted), quarantined(Granted, until), never(Granted)];
    let quarantined = AcquireFailure::Quarantined { until };
    assert_eq!(failure(&replies), (quarantined, 3));
}

#[test]
fn nobody_knows_when_a_vote_counts_again_whose_confirmation_has_expired() {
    let at = Timestamp::from_nanos;
    let mut round = round(5);
    round.tally.start = at(100);
    let mut reply = |index, reply, eligibility| {
        round.handle_reply(at(150), node(index), reply, eligibility);
        round.rules.clone()
    };
    let expired = Eligibility::ALWAYS.until(at(99));
    reply(0, Granted, expired);
    let never = reply(1, Granted, Eligibility::NEVER);
    assert_eq!(never.quarantined_until, Timestamp::MAX);
    // An owner that settles is confirmed again before it votes.
    let settling = Eligibility::since(at(101)).until(at(50));
    let counter = FencingToken::new(9);
    let settling = reply(2, Reply::Outbid { counter }, settling);
    assert_eq!(settling.quarantined_until, at(101));
    assert_eq!(settling.highest_counter, Some(counter), "it is known");
}
