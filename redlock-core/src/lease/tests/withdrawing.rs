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
fn an_attempt_goes_on_without_the_vote() {
    for (late, is_held) in [(&[Granted; 3][..], true), (&[Granted; 2], false)] {
        let mut driven = Driven::begun();
        let round = driven.sent[0].round;
        driven.reply(at(1), &[Granted]);
        driven.withdraw(at(2), &[0], since(at(0)));
        assert!(driven.told.is_empty(), "others may still agree");
        driven.reply_to(round, at(3), 1, late);
        assert_eq!(driven.is_held(at(3)), is_held);
    }
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

#[test]
fn a_late_vote_with_an_earlier_time_makes_the_others_no_older() {
    let mut driven = Driven::begun();
    let round = driven.sent[0].round;
    driven.reply_to(round, at(5), 0, &[Granted; 3]);
    assert!(driven.is_held(at(5)));
    driven.reply_to(round, at(2), 4, &[Granted]);
    driven.withdraw(at(500), &[0, 1], since(at(3)));
    assert!(!driven.is_held(at(500)), "nodes 2 and 4 are no majority");
}
