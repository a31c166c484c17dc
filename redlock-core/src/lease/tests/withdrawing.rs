use super::*;

/// Takes back the votes of a node from then on. It has no vote until much later.
fn since(since: Timestamp) -> Withdrawal {
    Withdrawal {
        since,
        eligibility: Eligibility::since(at(5000)),
    }
}

const LOST: Option<End> = Some(End::Lost(LossReason::VotesWithdrawn));

#[test]
fn late_votes_of_other_nodes_keep_the_lock() {
    let mut driven = Driven::begun();
    let round = driven.sent[0].round;
    driven.reply(at(1), &[Granted; 3]);
    driven.reply_to(round, at(3), 3, &[Granted, Denied]);
    driven.withdraw(at(10), &[0], since(at(1)));
    assert!(driven.is_held(at(10)), "1, 2 and 3 are a majority");
    // The late vote is in doubt, too, and now it is needed.
    driven.withdraw(at(11), &[3], since(at(2)));
    assert!(!driven.is_held(at(11)));
}

#[test]
fn an_extension_under_way_fails_and_is_tried_again() {
    let mut driven = Driven::held();
    driven.run(|lease| lease.extend(at(100)));
    let round = driven.sent[0].round;
    driven.reply_to(round, at(101), 0, &[Granted, Refused, Refused]);
    driven.withdraw(at(110), &[0], since(at(50)));
    assert_eq!(driven.told, extend_failed(at(900)));
    assert!(driven.is_held(at(110)), "by the votes from before");
}

#[test]
fn a_fence_needs_its_votes_even_after_an_extension() {
    let mut driven = Driven::new(config());
    driven.run(|lease| lease.acquire_fenced(at(0), at(1000), FencingToken::new(7)));
    driven.reply(at(1), &[Granted; 3]);
    driven.run(|lease| lease.extend(at(100)));
    let round = driven.last().round;
    driven.reply_to(round, at(101), 2, &[Granted; 3]);
    assert!(driven.is_held(at(102)));
    driven.withdraw(at(110), &[0], since(at(1)));
    assert_eq!(driven.late_end(), LOST, "its counter may be gone");
}
