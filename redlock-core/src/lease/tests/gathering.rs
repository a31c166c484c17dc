//! Gathering several keys while other clients keep them busy.

use super::{
    watching::{probing, taken},
    *,
};

/// Whether requests gather, and to which nodes they went.
fn gathered(driven: &Driven) -> Vec<NodeSet> {
    let gathers = |it: &&Transmit| matches!(it.operation, Operation::Acquire { gathers: true, .. });
    driven
        .sent
        .iter()
        .filter(gathers)
        .map(|it| it.nodes)
        .collect()
}

fn changed(driven: &mut Driven, node: usize) {
    driven.run(|lease| lease.probe_again(NodeId::new(node).unwrap()));
}

/// A lease of several keys whose first attempt failed after 1 ms, and which gathers them since 100 ms. The first request
/// went to node 0.
fn gathering() -> (Driven, RoundId) {
    let mut driven = probing(config().retry);
    driven.run(Lease::set_several_keys);
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    driven.reply(at(2), &[taken(900); 5]);
    run_until(&mut driven, at(100));
    assert_eq!(gathered(&driven), [only(&[0])]);
    let round = driven.sent.last().unwrap().round;
    (driven, round)
}

/// Lets the timers fire, while other clients have the keys.
fn run_until(driven: &mut Driven, until: Timestamp) {
    while let Some(due) = driven.lease.poll_timeout().filter(|due| *due <= until) {
        driven.run(|lease| lease.handle_timeout(due));
        if let Some(Operation::Probe { .. }) = driven.operations().last() {
            driven.reply(due, &[taken(900); 5]);
        }
    }
}

#[test]
fn the_keys_are_gathered_on_one_node_and_then_on_all() {
    let (mut driven, round) = gathering();
    driven.reply_to(round, at(101), 0, &[Denied]);
    changed(&mut driven, 0);
    driven.reply_to(round, at(102), 0, &[Granted]);
    let others = only(&[1, 2, 3, 4]);
    assert_eq!(gathered(&driven), [only(&[0]), only(&[0]), others]);
    driven.reply_to(round, at(103), 1, &[Granted, Denied]);
    assert!(!driven.is_held(at(103)));
    driven.reply_to(round, at(103), 3, &[Granted]);
    // From the start of the attempt: a ttl of 1000 ms less 100 ms.
    assert_eq!(driven.lease.valid_until(at(103)), Some(at(1000)));
    let tokens = driven.sent.iter().map(|it| it.operation.token());
    let gathered_with = tokens.filter(|it| *it == driven.lease.token());
    assert!(gathered_with.count() >= 3, "one token for all requests");
}

#[test]
fn a_node_that_lacks_a_key_is_asked_again_after_a_change_and_after_a_while() {
    let (mut driven, round) = gathering();
    driven.config().retry = RetrySchedule::new(MS(2)..=MS(5)).unwrap().with_probes();
    changed(&mut driven, 0);
    assert_eq!(gathered(&driven).len(), 1, "its answer comes first");
    driven.reply_to(round, at(101), 0, &[Denied]);
    assert_eq!(
        gathered(&driven).len(),
        2,
        "it may be older than the change"
    );
    driven.reply_to(round, at(102), 0, &[Denied]);
    driven.reply_to(round, at(102), 0, &[Denied]);
    assert_eq!(gathered(&driven).len(), 2);
    let due = driven.lease.poll_timeout().unwrap();
    assert!((at(104)..at(108)).contains(&due), "{due:?}");
    driven.run(|lease| lease.handle_timeout(due));
    assert_eq!(gathered(&driven).len(), 3);
}

#[test]
fn nodes_that_report_changes_are_probed_too_and_asked_more_rarely() {
    let (mut driven, round) = gathering();
    driven.run(|lease| lease.set_notified(true));
    driven.reply_to(round, at(101), 0, &[Denied]);
    let due = driven.lease.poll_timeout().unwrap();
    assert!(due >= at(121), "{due:?}");
    changed(&mut driven, 0);
    let last = driven.sent.last().unwrap();
    assert!(matches!(last.operation, Operation::Probe { .. }));
    assert_eq!(last.nodes, only(&[0]));
}

#[test]
fn a_node_that_does_not_answer_is_passed_over() {
    let (mut driven, round) = gathering();
    driven.reply_to(round, at(150), 0, &[Unknown]);
    assert_eq!(gathered(&driven), [only(&[0]), only(&[1])]);
    driven.reply_to(round, at(151), 1, &[Granted]);
    assert_eq!(gathered(&driven)[2..], [only(&[2, 3, 4])]);
    driven.reply_to(round, at(152), 2, &[Unknown, Unknown]);
    assert!(matches!(
        driven.operations().last(),
        Some(Operation::Release { .. })
    ));
}

#[test]
fn gathered_keys_are_kept_for_a_limited_time_and_then_left_to_others() {
    let (mut driven, round) = gathering();
    let token = driven.lease.token();
    driven.reply_to(round, at(101), 0, &[Granted]);
    driven.reply_to(round, at(101), 1, &[Granted, Denied, Denied, Denied]);
    let is_released = |driven: &Driven| driven.operations().contains(&release_of(token));
    while driven.lease.poll_timeout() < Some(at(225)) {
        let due = driven.lease.poll_timeout().unwrap();
        driven.run(|lease| lease.handle_timeout(due));
        driven.reply_to(round, due, 2, &[Denied; 3]);
        assert!(!is_released(&driven), "{due:?}");
    }
    // An eighth of the ttl.
    driven.run(|lease| lease.handle_timeout(at(225)));
    assert!(is_released(&driven));
    assert_eq!(driven.lease.attempts(), 2);
    let before = gathered(&driven).len();
    driven.reply(at(226), &[taken(900); 5]);
    run_until(&mut driven, at(324));
    assert_eq!(gathered(&driven).len(), before);
    run_until(&mut driven, at(425));
    assert_eq!(gathered(&driven).len(), before + 1);
    assert_ne!(driven.lease.token(), token);
}

/// Other clients keep one of the keys for three seconds, and then the keys are free. All the while the nodes are slow, and
/// timers come as late as answers.
#[test]
fn free_keys_are_locked_although_a_gathering_is_too_short_for_slow_nodes() {
    for delay in [40, 90, 200, 450] {
        let mut driven = probing(config().retry);
        driven.run(Lease::set_several_keys);
        driven.run(|lease| lease.set_notified(true));
        driven.run(|lease| lease.acquire(at(0), at(60_000)));
        let mut under_way: Vec<(Timestamp, Transmit)> = Vec::new();
        let mut now = at(0);
        while !driven.is_held(now) {
            let answered_at = now.saturating_add(MS(delay));
            under_way.extend(driven.sent.drain(..).map(|it| (answered_at, it)));
            let answered_at = under_way.first().map(|(at, _)| *at);
            let due = driven.lease.poll_timeout();
            let due = due.map(|at| at.saturating_add(MS(delay)));
            now = due
                .into_iter()
                .chain(answered_at)
                .min()
                .expect("the lease goes on")
                .max(now);
            if answered_at.is_none_or(|at| now < at) {
                driven.run(|lease| lease.handle_timeout(now));
                continue;
            }
            let (_, answered) = under_way.remove(0);
            let reply = match answered.operation {
                Operation::Acquire { .. } if now < at(3000) => Denied,
                Operation::Acquire { .. } => Granted,
                _ if now < at(3000) => taken(3000),
                _ => Reply::Free,
            };
            for node in answered.nodes.iter() {
                driven.reply_to(answered.round, now, node.index(), &[reply]);
            }
        }
        assert!(now < at(3000 + 20 * delay), "{delay} ms: {now:?}");
    }
}

#[test]
fn one_key_is_never_gathered() {
    let mut driven = probing(config().retry);
    driven.acquire(at(0));
    driven.reply(at(1), &[Denied; 3]);
    driven.reply(at(2), &[taken(900); 5]);
    run_until(&mut driven, at(899));
    assert_eq!(gathered(&driven), []);
}

#[test]
fn a_node_without_all_gathered_keys_is_repaired_soon() {
    let (mut driven, round) = gathering();
    driven.reply_to(round, at(101), 0, &[Granted]);
    driven.reply_to(round, at(102), 1, &[Denied, Granted, Granted]);
    assert!(driven.is_held(at(102)));
    driven.run(|lease| lease.claim(at(102)));
    let due = driven.lease.poll_timeout().unwrap();
    driven.run(|lease| lease.handle_timeout(due));
    let repairs = driven.sent.iter().filter(|it| {
        matches!(it.operation, Operation::Acquire { gathers: false, .. }) && !it.asks_for_votes
    });
    assert_eq!(repairs.map(|it| it.nodes).collect::<Vec<_>>(), [only(&[1])]);
}
