use super::*;

fn outbid(counter: u64) -> Reply {
    Reply::Outbid {
        counter: FencingToken::new(counter),
    }
}

fn fenced(proposal: u64) -> Driven {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire_fenced(at(0), FencingToken::new(proposal)));
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
    let valid_until = at(900);
    assert_eq!(driven.told, [Event::Acquired { valid_until, fence }]);
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
    let valid_until = at(900);
    let fence = Some(fence);
    assert_eq!(driven.told, [Event::Acquired { valid_until, fence }]);
    assert_eq!(driven.lease.attempts(), 1);
}

#[test]
fn a_fence_that_cannot_be_agreed_on_in_time_fails_the_attempt() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(9); 3]);
    assert_eq!(driven.lease.poll_timeout(), Some(at(900)));
    let token = driven.lease.token();
    driven.reply(at(2), &[Denied; 3]);
    assert_eq!(driven.operations()[2], release_of(token));
    let retry = driven.lease.poll_timeout().unwrap();
    driven.run(|lease| lease.handle_timeout(retry));
    let fence = Some(FencingToken::new(10));
    let again = driven.sent.last().unwrap().operation;
    assert!(
        matches!(again, Operation::Acquire { fence: it, .. } if it == fence),
        "it has learned"
    );
}

#[test]
fn fences_end_at_the_last_one() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(FencingToken::MAX.get()); 3]);
    let failure = AcquireFailure::FenceExhausted;
    assert_eq!(
        driven.told,
        [Event::Exhausted {
            failure,
            attempts: 1
        }]
    );
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
    assert!(driven.lease.is_closed());
    silent.run(|lease| lease.handle_timeout(at(900)));
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
fn a_fence_that_nobody_answers_is_too_slow_at_the_end_of_validity() {
    let mut driven = Driven::new(LeaseConfig {
        retry: config().retry.with_max_attempts(1),
        ..config()
    });
    driven.run(|lease| lease.acquire_fenced(at(0), FencingToken::new(7)));
    driven.reply(at(1), &[outbid(9); 3]);
    driven.run(|lease| lease.handle_timeout(at(900)));
    let failure = AcquireFailure::TooSlow;
    assert_eq!(
        driven.told,
        [Event::Exhausted {
            failure,
            attempts: 1
        }]
    );
}
