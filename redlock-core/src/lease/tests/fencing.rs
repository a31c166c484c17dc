use super::*;

fn outbid(counter: u64) -> Reply {
    Reply::Outbid {
        counter: FencingToken::new(counter),
    }
}

fn fenced(proposal: u64) -> Driven {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire_fenced(at(0), at(1000), FencingToken::new(proposal)));
    driven
}

#[test]
fn a_fence_that_a_majority_accepts_costs_one_round() {
    let mut driven = fenced(7);
    let fence = Some(FencingToken::new(7));
    assert!(
        matches!(driven.sent[0].operation, Operation::Acquire { fence: it, .. } if it == fence)
    );
    driven.reply(at(1), &[Granted, Denied, Granted, Denied, Granted]);
    assert_eq!(driven.told, [acquired(fence, &[0, 2, 4])]);
    assert_eq!(driven.sent.len(), 1);
}

#[test]
fn a_fence_that_is_outbid_is_raised_while_the_keys_are_held() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(9), Granted, outbid(5)]);
    assert!(!driven.is_held(at(1)) && driven.told.is_empty());
    let token = driven.lease.token();
    let fence = FencingToken::new(10);
    assert_eq!(driven.operations()[1], Operation::Fence { token, fence });
    assert_eq!(driven.sent[1].nodes, NodeSet::first(5));
    // A node that had not replied yet is further ahead.
    driven.reply(at(2), &[Granted, outbid(40), Granted, outbid(20), Denied]);
    let fence = FencingToken::new(41);
    assert_eq!(driven.operations()[2], Operation::Fence { token, fence });
    driven.reply(at(3), &[Granted; 3]);
    // The validity counts from the first request, whatever the fence took.
    assert_eq!(driven.told, [acquired(Some(fence), &[0, 1, 2])]);
    assert_eq!(driven.lease.attempts(), 1);
}

#[test]
fn a_fence_that_cannot_be_agreed_on_in_time_fails_the_attempt() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(9); 3]);
    assert_eq!(driven.due(), at(900));
    let token = driven.lease.token();
    driven.reply(at(2), &[Denied; 3]);
    assert_eq!(driven.operations()[2], release_of(token));
}

/// Retries at the earliest time, and returns how long after the start that is, in microseconds, and
/// what is proposed.
fn retried(driven: &mut Driven) -> (u64, u64) {
    let retry = driven.wait();
    match driven.last().operation {
        Operation::Acquire {
            fence: Some(fence), ..
        } => (retry.as_nanos() / 1000, fence.get()),
        other => panic!("{other:?} is no fenced attempt"),
    }
}

#[test]
fn each_attempt_proposes_anew_by_the_time_that_has_passed() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[Denied; 3]);
    let (passed, proposal) = retried(&mut driven);
    assert!(passed > 20_000, "a delay of 20 ms at least");
    assert_eq!(proposal, 7 + passed);
    driven.reply(at(400), &[Denied; 3]);
    let (passed, proposal) = retried(&mut driven);
    assert!(passed > 400_000);
    assert_eq!(proposal, 7 + passed);
}

#[test]
fn no_attempt_proposes_less_than_a_counter_that_was_told() {
    // A minority is ahead; the attempt fails for another reason.
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(900_000_000), Denied, Denied, Denied]);
    let (_, proposal) = retried(&mut driven);
    assert_eq!(proposal, 900_000_001);
    // The same in a second round that no other node answers.
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(9); 3]);
    driven.reply(at(2), &[outbid(900_000_000)]);
    driven.timeout(at(900));
    let (_, proposal) = retried(&mut driven);
    assert_eq!(proposal, 900_000_001);
}

/// Extends, and returns what follows when nodes 0 to 2 still have the key and node 3 has lost it.
fn after_an_extension(driven: &mut Driven) -> Vec<(NodeSet, Operation)> {
    driven.run(|lease| lease.extend(at(300)));
    let extension = driven.last().round;
    let before = driven.sent.len();
    driven.reply_to(extension, at(301), 3, &[Denied]);
    driven.reply_to(extension, at(301), 0, &[Granted; 3]);
    let sent = driven.sent[before..].iter();
    sent.map(|it| (it.nodes, it.operation)).collect()
}

fn repair_of(driven: &Driven, fence: u64) -> (NodeSet, Operation) {
    let operation = Operation::Acquire {
        token: driven.lease.token(),
        ttl: config().validity.ttl(),
        fence: Some(FencingToken::new(fence)),
    };
    (only(&[3]), operation)
}

#[test]
fn a_repair_brings_the_counter_back_with_the_key() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[Granted; 3]);
    let sent = after_an_extension(&mut driven);
    // Node 4 has not answered: it may have the key and a smaller counter.
    let token = driven.lease.token();
    let fence = FencingToken::new(7);
    let raise = (only(&[4]), Operation::Fence { token, fence });
    assert_eq!(sent, [repair_of(&driven, 7), raise]);
    // A loss that is told late.
    let extension = driven.sent[1].round;
    driven.reply_to(extension, at(302), 4, &[Denied]);
    let late = driven.last();
    assert_eq!(late.nodes, only(&[4]));
    assert_eq!(late.operation, repair_of(&driven, 7).1);
}

#[test]
fn a_counter_that_missed_the_second_round_is_raised_where_the_key_is() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(9); 3]);
    driven.reply(at(2), &[Granted, Unknown, Granted, Granted]);
    let sent = after_an_extension(&mut driven);
    let token = driven.lease.token();
    let fence = FencingToken::new(10);
    let raise = (only(&[1, 4]), Operation::Fence { token, fence });
    assert_eq!(sent, [repair_of(&driven, 10), raise]);
    // Neither answer is counted.
    let held = driven.lease.clone();
    for round in [driven.sent[3].round, driven.sent[4].round] {
        driven.reply_to(round, at(302), 0, &[Denied; 5]);
    }
    assert_eq!(driven.lease, held);
}

#[test]
fn fences_end_at_the_last_one() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(FencingToken::MAX.get()); 3]);
    assert_eq!(driven.end(), exhausted(AcquireFailure::FenceExhausted, 1));
}

#[test]
fn given_up_or_silent_while_fencing_it_is_released() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(9); 3]);
    let mut silent = Driven {
        lease: driven.lease.clone(),
        sent: driven.sent.clone(),
        told: Vec::new(),
    };
    let token = driven.lease.token();
    driven.run(|lease| lease.release(at(2)));
    assert_eq!(driven.operations()[2], release_of(token));
    assert_eq!(driven.late_end(), Some(End::GivenUp));
    silent.timeout(at(900));
    assert_eq!(silent.operations()[2], release_of(token));
    assert!(
        silent.lease.poll_timeout() > Some(at(900)),
        "and tried again"
    );
}

#[test]
fn a_counter_that_makes_no_sense_does_not_lower_the_proposal() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(2); 3]);
    let token = driven.lease.token();
    let fence = FencingToken::new(8);
    assert_eq!(driven.operations()[1], Operation::Fence { token, fence });
}

#[test]
fn a_fence_without_an_answer_is_too_slow_at_the_end_of_validity() {
    let mut driven = Driven::new(LeaseConfig {
        retry: config().retry.with_max_attempts(1),
        ..config()
    });
    driven.run(|lease| lease.acquire_fenced(at(0), at(1000), FencingToken::new(7)));
    driven.reply(at(1), &[outbid(9); 3]);
    driven.timeout(at(900));
    assert_eq!(driven.end(), exhausted(AcquireFailure::TooSlow, 1));
}

#[test]
fn a_fence_whose_wait_ends_fails_as_the_attempt_before() {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire_fenced(at(0), at(500), FencingToken::new(7)));
    driven.reply(at(1), &[Denied; 3]);
    let retry = driven.lease.poll_timeout().expect("another attempt");
    driven.timeout(retry);
    driven.reply(retry, &[outbid(9); 3]);
    assert_eq!(driven.due(), at(500));
    driven.timeout(at(500));
    // The nodes have answered as they should.
    assert_eq!(driven.end(), exhausted(AcquireFailure::Contended, 2));
}
