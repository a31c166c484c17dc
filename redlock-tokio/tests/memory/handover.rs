//! Handover: a released lock passes to the next waiter of the process without a request to the nodes. Over
//! nodes in memory, by tokio's clock.

use std::time::Duration;

use futures::FutureExt;
use redlock_tokio::{ExtendError, LockGuard, LockOptions, LossReason, MemoryNode, ReleaseOutcome};
use tokio::time::timeout;

use crate::support::{
    MS, built,
    in_memory::{all_empty, blocked, fleet, over, three_nodes},
};

#[tokio::test(start_paused = true)]
async fn a_handed_over_lock_has_a_guard_of_its_own() {
    let (nodes, [redlock]) = fleet().await;
    let first = redlock.lock("k").max_hold(MS(60_000)).await.unwrap();
    let old = first.hold().view();
    let value = nodes[0].value("k");
    let waiting = blocked(redlock.lock("k").max_hold(MS(60_000))).await;
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let second = timeout(MS(1), waiting).await.expect("it is woken");
    let second = second.unwrap().unwrap();
    assert_eq!(nodes[0].value("k"), value, "no node was asked");
    assert!(second.is_valid() && !old.is_valid());
    assert_eq!(old.remaining(), Duration::ZERO);
    assert_eq!(old.extend().await, Err(ExtendError::Released));
    second.extend().await.unwrap();
    // It has a `max_hold` of its own. Its loss is no loss for the earlier holder.
    tokio::time::sleep(MS(59_000)).await;
    assert!(second.is_valid());
    assert_eq!(second.lost().await, LossReason::MaxHold);
    assert!(old.lost().now_or_never().is_none());
    drop(second);
    redlock.shutdown(None).await;
    assert!(all_empty(&nodes));
}

/// For how long a process may keep a lock by handovers while others wait.
const TURN: Duration = Duration::from_millis(30);

/// Returns whether the lock passes from a holder to a waiter for the same key without a release.
async fn is_handed_over(
    streak: Duration,
    options: [LockOptions; 2],
    end: impl AsyncFnOnce(LockGuard),
) -> bool {
    let builder = over(&three_nodes()).max_ttl(MS(60_000));
    let redlock = built(builder.handover_for(streak)).await;
    let [first, second] = options.map(|it| redlock.lock("k").options(it));
    let guard = first.await.unwrap();
    let token = guard.token();
    let waiting = blocked(second).await;
    end(guard).await;
    waiting.await.unwrap().unwrap().token() == token
}

#[tokio::test(start_paused = true)]
async fn handover_depends_on_the_options_and_the_state_of_the_lock() {
    let after = |time| {
        async move |guard: LockGuard| {
            tokio::time::sleep(MS(time)).await;
            drop(guard);
        }
    };
    let plain = LockOptions::new();
    let forbids = plain.handover(false);
    let interval = plain.renew_every(MS(9));
    let patient = plain.wait(MS(60_000));
    let unrenewed = patient.no_renewal();
    for (what, holders, waiters, held, expected) in [
        ("the same options", plain, plain, 0, true),
        ("a longer wait", plain, plain.wait(MS(9000)), 0, true),
        ("a holder that forbids it", forbids, plain, 0, false),
        ("a waiter that forbids it", plain, forbids, 0, false),
        ("another ttl", plain, plain.ttl(MS(9000)), 0, false),
        ("another max_hold", plain, plain.max_hold(MS(9)), 0, false),
        ("another interval", plain, interval, 0, false),
        ("half of the ttl is not over", patient, patient, 4900, true),
        ("half of the ttl is over", patient, patient, 5100, true),
        ("little validity is left", unrenewed, unrenewed, 4950, false),
    ] {
        let found = is_handed_over(MS(60_000), [holders, waiters], after(held)).await;
        assert_eq!(found, expected, "{what}");
    }
    // Nobody else waits, so it does not matter whether the streak is over.
    for held in [29, 31] {
        assert!(is_handed_over(TURN, [plain; 2], after(held)).await);
    }
    let panics = async |guard: LockGuard| {
        let panicking = tokio::spawn(async move {
            let _guard = guard;
            panic!("this holder panics on purpose");
        });
        assert!(panicking.await.unwrap_err().is_panic());
    };
    assert!(!is_handed_over(TURN, [plain; 2], panics).await);
    let loses_the_lock = async |guard: LockGuard| _ = guard.lost().await;
    let short = patient.max_hold(MS(9));
    assert!(!is_handed_over(MS(60_000), [short; 2], loses_the_lock).await);
}

#[tokio::test(start_paused = true)]
async fn each_fenced_lock_has_a_larger_fencing_token() {
    let (nodes, [redlock]) = fleet().await;
    let first = redlock.lock("k").fenced(true).await.unwrap();
    let waiting = tokio::spawn(redlock.lock("k").fenced(true).into_future());
    let unfenced = blocked(redlock.lock("k")).await;
    let token = first.fencing_token();
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    assert!(token.is_some() && second.fencing_token() > token);
    let token = second.fencing_token();
    drop(second);
    assert_eq!(unfenced.await.unwrap().unwrap().fencing_token(), None);
    nodes.iter().for_each(MemoryNode::clear);
    let third = redlock.lock("k").fenced(true).await.unwrap();
    assert!(third.fencing_token() > token, "without the nodes' counters");
}
