//! Readers and writers: who insists, who marks the key, and downgrades.

use super::{
    watching::{probing, taken},
    *,
};

const INSISTENT: Access = Access::Reader { insists: true };

fn marked(until: u64) -> Reply {
    Reply::Marked { until: at(until) }
}

fn begun(share: Share) -> Driven {
    let mut driven = probing(config().retry);
    driven.lease.set_share(share);
    driven.acquire(at(0));
    driven
}

/// A lease that was denied the key after 1 ms, and waits for the answers to its look.
fn denied(share: Share) -> Driven {
    let mut driven = begun(share);
    driven.reply(at(1), &[Denied; 3]);
    driven
}

/// A lock that is held, with no request or event left.
fn held(share: Share) -> Driven {
    let mut driven = begun(share);
    driven.reply(at(1), &[Granted; 3]);
    driven.run(|lease| lease.claim(at(1)));
    assert!(driven.is_held(at(1)));
    driven.sent.clear();
    driven.told.clear();
    driven
}

#[test]
fn a_reader_insists_once_a_writer_has_come_and_gone() {
    let mut driven = denied(Share::Reader);
    driven.reply(at(2), &[taken(900); 5]);
    driven.freed(at(5), [0, 1]);
    assert_eq!(driven.lease.attempts(), 1);
    driven.freed(at(5), [2]);
    assert_eq!(driven.lease.attempts(), 2);
    assert_eq!(driven.last().access, INSISTENT);
    // The next writer was faster. Its mark, or that of another, does not matter any more.
    driven.reply(at(6), &[Denied; 3]);
    assert_eq!(driven.last().access, INSISTENT);
    driven.reply(at(7), &[marked(900); 3]);
    assert_eq!(driven.lease.attempts(), 3);
    assert_eq!(driven.last().access, INSISTENT);
}

#[test]
fn a_reader_that_finds_a_mark_after_a_writer_insists() {
    let mut driven = denied(Share::Reader);
    driven.reply(at(2), &[taken(900), marked(900), taken(900), taken(900)]);
    let due = driven.wait();
    driven.reply(due, &[marked(900), marked(900)]);
    assert_eq!(driven.lease.attempts(), 1, "the writer may be there still");
    driven.reply(due, &[Unknown, Unknown, marked(900)]);
    assert_eq!(driven.lease.attempts(), 2);
    assert_eq!(driven.last().access, INSISTENT);
}

#[test]
fn readers_that_leave_a_marked_key_do_not_make_it_free() {
    let mut driven = denied(Share::Reader);
    driven.reply(at(2), &[marked(900); 3]);
    for node in 0..3 {
        driven.freed(at(3), [node]);
        assert_eq!(driven.last().nodes, only(&[node]), "it looks there again");
    }
    assert_eq!(driven.lease.attempts(), 1);
}

/// For how long the last request marks the key.
fn mark(driven: &Driven) -> Option<Duration> {
    match driven.last().operation {
        Operation::Probe { mark, .. } => mark.map(Ttl::as_duration),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_writer_marks_the_key_until_a_little_after_its_next_look() {
    let mut driven = denied(Share::Writer);
    assert_eq!(driven.last().access, Access::Writer);
    let mut now = at(1);
    for _ in 0..3 {
        let due = driven.due();
        let margin = mark(&driven).unwrap() - due.saturating_duration_since(now);
        assert!(margin >= MS(100) && margin < MS(101), "{margin:?}");
        driven.reply(now, &[taken(5000); 5]);
        driven.timeout(due);
        now = due;
    }
    driven.reply(now, &[taken(5000); 5]);
    driven.run(|lease| lease.probe_again(node(4)));
    assert_eq!(mark(&driven), None, "the mark of the look before is there");
}

#[test]
fn a_mark_lives_no_longer_than_the_key_of_its_writer() {
    let seldom = RetrySchedule::new(MS(60_000)..=MS(60_000)).unwrap();
    let mut driven = probing(seldom);
    driven.lease.set_share(Share::Writer);
    driven.run(|lease| lease.acquire(at(0), Timestamp::MAX));
    driven.reply(at(1), &[Denied; 3]);
    assert_eq!(mark(&driven), Some(MS(1000)));
}

/// A lock that one client holds alone has no room for others, and neither has one that has ended.
#[test]
fn readers_join_a_lock_that_readers_hold_and_no_other_lock() {
    for (share, joins) in [
        (Share::Reader, true),
        (Share::Writer, false),
        (Share::Exclusive, false),
    ] {
        let mut driven = held(share);
        assert_eq!(driven.run(|lease| lease.join(at(2))), joins, "{share:?}");
        assert!(driven.sent.is_empty(), "it costs no request");
        driven.run(|lease| lease.downgrade(at(2)));
        assert!(driven.run(|lease| lease.join(at(3))), "{share:?}");
        driven.run(|lease| lease.release(at(4)));
        assert!(!driven.run(|lease| lease.join(at(5))));
    }
    assert!(!begun(Share::Reader).run(|lease| lease.join(at(1))));
}

/// Returns when a lock that readers hold ends, if one of them joins it at each of these times.
fn end_of_hold(joins: &[u64]) -> Timestamp {
    let mut driven = held(Share::Reader);
    let mut joins = joins.iter().copied().map(at).peekable();
    loop {
        let due = driven.due();
        if let Some(join) = joins.next_if(|join| *join < due) {
            assert!(driven.run(|lease| lease.join(join)));
            continue;
        }
        driven.timeout(due);
        if driven.late_end() == lost(LossReason::MaxHold) {
            return due;
        }
        driven.reply(due, &[Granted; 3]);
    }
}

#[test]
fn the_longest_hold_counts_from_the_last_reader_that_joined() {
    let alone = end_of_hold(&[]);
    assert!(alone > at(2000) && alone < at(3000), "{alone:?}");
    let joined = end_of_hold(&[500, 1500]);
    assert!(joined > at(3500) && joined < at(4500), "{joined:?}");
    // Renewal had ended, and goes on.
    let late = end_of_hold(&[2100]);
    assert!(late > at(4100) && late < at(5100), "{late:?}");
}
