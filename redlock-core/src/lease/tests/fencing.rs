use super::*;

#[test]
fn a_repair_brings_the_counter_back_with_the_key() {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire_fenced(at(0), at(1000), FencingToken::new(7)));
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
