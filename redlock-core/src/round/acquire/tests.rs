use super::*;
use crate::{
    Drift, Eligibility, Reply, Ttl,
    said::{Said, node, quarantined},
};
use core::time::Duration;

use Reply::{Denied, Granted, Refused, Unknown};

fn round(nodes: usize) -> Acquire {
    let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
    let validity = Validity::new(ttl, Drift::default()).unwrap();
    let quorum = Quorum::majority(nodes).unwrap();
    Acquire::new(quorum, validity, None, Timestamp::ZERO)
}

/// Feeds the replies of nodes 0, 1, 2 ... at one time; returns the verdict and after how many
/// replies it came.
fn verdict<R: Into<Said> + Copy>(
    round: &mut Acquire,
    now: Timestamp,
    replies: &[R],
) -> (AcquireVerdict, usize) {
    for (index, reply) in replies.iter().enumerate() {
        let node = node(index);
        let Said { reply, eligibility } = (*reply).into();
        if let Some(verdict) = round.handle_reply(now, node, reply, eligibility) {
            return (verdict, index + 1);
        }
    }
    panic!("no verdict after {} replies", replies.len());
}

fn failure<R: Into<Said> + Copy>(replies: &[R]) -> (AcquireFailure, usize) {
    match verdict(&mut round(5), Timestamp::ZERO, replies) {
        (AcquireVerdict::Failed(failure), after) => (failure, after),
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn a_quorum_at_the_end_of_validity_is_too_slow() {
    let end = round(5).valid_until();
    let just_before = Timestamp::from_nanos(end.as_nanos() - 1);
    let (in_time, _) = verdict(&mut round(5), just_before, &[Granted; 3]);
    assert!(matches!(in_time, AcquireVerdict::Acquired { .. }));
    let (late, _) = verdict(&mut round(5), end, &[Granted; 3]);
    assert_eq!(late, AcquireVerdict::Failed(AcquireFailure::TooSlow));
}

#[test]
fn giving_up_says_what_is_known_or_suspected() {
    use AcquireFailure::{Contended, NoQuorum, TooSlow};
    let give_up = |reply: Option<Reply>, now, suspicion| {
        let mut round = round(5);
        if let Some(reply) = reply {
            round.handle_reply(now, node(0), reply, Eligibility::ALWAYS);
        }
        round.give_up(now, suspicion)
    };
    let failed = |failure| Some(AcquireVerdict::Failed(failure));
    let (now, late) = (Timestamp::ZERO, Timestamp::MAX);
    assert_eq!(give_up(None, now, None), failed(NoQuorum));
    assert_eq!(give_up(None, now, Some(Contended)), failed(Contended));
    assert_eq!(give_up(Some(Denied), now, None), failed(Contended));
    assert_eq!(give_up(None, late, Some(Contended)), failed(TooSlow));
}

#[test]
fn what_is_withdrawn_may_decide_the_round() {
    let until = Timestamp::from_nanos(9);
    let doubted = Eligibility::since(until);
    let mut round = round(3);
    let (now, always) = (Timestamp::ZERO, Eligibility::ALWAYS);
    round.handle_reply(now, node(0), Granted, always);
    assert_eq!(round.withdraw(now, node(1), doubted), None, "no vote yet");
    assert_eq!(round.withdraw(now, node(0), doubted), None, "1 of 3");
    let failed = AcquireVerdict::Failed(AcquireFailure::Quarantined { until });
    let verdict = round.handle_reply(now, node(1), Granted, doubted);
    assert_eq!(verdict, Some(failed));
    assert_eq!(round.withdraw(now, node(1), doubted), None, "once");
}

/// One failed, one in quarantine, one foreign: it is the foreign key that tips the scales.
#[test]
fn a_foreign_key_that_prevents_a_majority_is_named_before_a_quarantine() {
    let held_back = quarantined(Granted, Timestamp::from_nanos(9));
    let replies = [Refused.into(), held_back, Denied.into()];
    assert_eq!(failure(&replies), (AcquireFailure::Contended, 3));
}

fn fenced(replies: &[Reply]) -> (AcquireVerdict, usize) {
    let mut round = round(5);
    round.rules.fence = Some(FencingToken::new(7));
    verdict(&mut round, Timestamp::ZERO, replies)
}

#[test]
fn a_fence_needs_a_majority_of_its_own() {
    let counter = FencingToken::new(40);
    let outbid = Reply::Outbid { counter };
    let fence = Some(FencingToken::new(7));
    let valid_until = round(5).valid_until();
    let acquired = AcquireVerdict::Acquired { valid_until, fence };
    assert_eq!(fenced(&[Granted; 3]), (acquired, 3));
    let divided = [Denied, Granted, Granted, Denied, Granted];
    assert_eq!(fenced(&divided), (acquired, 5));
    let second_round = AcquireVerdict::Outbid { counter };
    assert_eq!(fenced(&[Granted, outbid, Granted]), (second_round, 3));
    assert_eq!(fenced(&[outbid, Denied, outbid, outbid]), (second_round, 4));
}

/// The replies to a further proposal.
fn proposed<R: Into<Said> + Copy>(now: Timestamp, replies: &[R]) -> (AcquireVerdict, usize) {
    let mut round = round(5).propose(FencingToken::new(7), Timestamp::ZERO);
    verdict(&mut round, now, replies)
}

#[test]
fn a_proposal_is_accepted_by_a_majority_in_time() {
    let valid_until = round(5).valid_until();
    let fence = Some(FencingToken::new(7));
    let acquired = AcquireVerdict::Acquired { valid_until, fence };
    assert_eq!(proposed(Timestamp::ZERO, &[Granted; 5]), (acquired, 3));
    let too_slow = AcquireVerdict::Failed(AcquireFailure::TooSlow);
    assert_eq!(proposed(valid_until, &[Granted; 5]), (too_slow, 3));
}

#[test]
fn a_larger_proposal_may_win_while_the_keys_are_there() {
    let counter = FencingToken::new(40);
    let outbid = Reply::Outbid { counter };
    let another_round = (AcquireVerdict::Outbid { counter }, 4);
    // The first three decide nothing.
    let replies = [outbid, Granted, outbid, Denied];
    assert_eq!(proposed(Timestamp::ZERO, &replies), another_round);
}

#[test]
fn a_proposal_fails_with_its_keys_or_its_nodes() {
    let failed = |failure, after| (AcquireVerdict::Failed(failure), after);
    let lost = proposed(Timestamp::ZERO, &[Denied, Granted, Denied, Denied]);
    assert_eq!(lost, failed(AcquireFailure::Contended, 4));
    let held_back = quarantined(Granted, Timestamp::from_nanos(9));
    let down = proposed(
        Timestamp::ZERO,
        &[Unknown.into(), Refused.into(), held_back],
    );
    assert_eq!(down, failed(AcquireFailure::NoQuorum, 3));
}

#[test]
fn without_a_fence_a_counter_does_not_matter() {
    let counter = FencingToken::new(40);
    let replies = [Reply::Outbid { counter }; 2];
    let (verdict, _) = verdict(&mut round(3), Timestamp::ZERO, &replies);
    let is_acquired = matches!(verdict, AcquireVerdict::Acquired { fence: None, .. });
    assert!(is_acquired, "{verdict:?}");
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
