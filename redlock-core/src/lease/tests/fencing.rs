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
fn no_attempt_proposes_less_than_a_counter_that_was_told() {
    // A minority is ahead; the attempt fails for another reason.
    let mut driven = fenced(7);
    driven.reply(at(1), &[outbid(900_000_000), Denied, Denied, Denied]);
    driven.wait();
    let proposal = Some(FencingToken::new(900_000_001));
    let operation = driven.last().operation;
    assert!(matches!(operation, Operation::Acquire { fence, .. } if fence == proposal));
}

#[test]
fn a_repair_brings_the_counter_back_with_the_key() {
    let mut driven = fenced(7);
    driven.reply(at(1), &[Granted; 3]);
    driven.run(|lease| lease.extend(at(300)));
    let extension = driven.last().round;
    driven.reply_to(extension, at(301), 3, &[Denied]);
    driven.reply_to(extension, at(301), 0, &[Granted; 3]);
    let (token, fence) = (driven.lease.token(), FencingToken::new(7));
    let repair = Operation::Acquire {
        token,
        ttl: config().validity.ttl(),
        fence: Some(fence),
    };
    assert_eq!(driven.sent[2].nodes, only(&[3]));
    assert_eq!(driven.sent[2].operation, repair);
    // Node 4 has not answered: it may have the key and a smaller counter.
    assert_eq!(driven.sent[3].nodes, only(&[4]));
    assert_eq!(driven.sent[3].operation, Operation::Fence { token, fence });
    // A loss that is told late.
    driven.reply_to(extension, at(302), 4, &[Denied]);
    assert_eq!(driven.last().nodes, only(&[4]));
    assert_eq!(driven.last().operation, repair);
}
