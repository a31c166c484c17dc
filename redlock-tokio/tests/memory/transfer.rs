//! Locks that one process gives away and another adopts: over nodes in memory, by tokio's clock.

use std::time::Duration;

use futures::FutureExt;
use redlock_tokio::{
    ExtendError, LockError, LockOptions, LockTicket, MemoryNode, Redlock,
    errors::{AdoptError, Objection, TicketError},
};
use tokio::time::Instant;

use crate::support::{
    MS, built,
    in_memory::{all_empty, over, set_down, three_nodes},
    states::all_vote,
    unrenewed,
};

/// Connects a process whose wall clock is ahead by this much.
async fn process(nodes: &[MemoryNode], label: &str, ahead: Duration) -> Redlock {
    let since = Instant::now();
    let wall_clock = move || Duration::from_secs(1000) + ahead + since.elapsed();
    built(over(nodes).client_name(label).wall_clock(wall_clock)).await
}

/// Three nodes, and two processes.
async fn giver_and_worker() -> (Vec<MemoryNode>, Redlock, Redlock) {
    let nodes = three_nodes();
    let giver = process(&nodes, "giver", Duration::ZERO).await;
    let worker = process(&nodes, "worker", Duration::ZERO).await;
    (nodes, giver, worker)
}

async fn ticket(giver: &Redlock, key: &str) -> LockTicket {
    giver.lock(key).await.unwrap().into_ticket().unwrap()
}

fn have(nodes: &[MemoryNode], key: &str, label: &str) -> bool {
    let has = |it: &MemoryNode| {
        it.value(key)
            .is_some_and(|it| it.ends_with(label.as_bytes()))
    };
    nodes.iter().all(has)
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_away_is_neither_renewed_nor_released() {
    let (nodes, giver, worker) = giver_and_worker().await;
    let guard = giver.lock("k").await.unwrap();
    let hold = guard.hold().view();
    let ticket = guard.into_ticket().unwrap();
    assert_eq!(ticket.key().as_bytes(), b"k");
    assert_eq!(ticket.giver().value(), hold.value().as_bytes());
    assert!(!hold.is_valid() && hold.lost().now_or_never().is_none());
    assert_eq!(hold.extend().await, Err(ExtendError::Released));
    assert!(giver.held().is_empty());
    assert_eq!(giver.queue().keys, 0);
    let report = giver.shutdown(None).await;
    assert_eq!((report.held, report.abandoned), (0, 0));
    assert!(have(&nodes, "k", "@giver"), "the keys stay");
    // Nobody adopts it. It is free after its ttl, and not before.
    tokio::time::sleep(MS(9_900)).await;
    assert!(worker.try_lock("k").await.unwrap_err().is_contended());
    tokio::time::sleep(MS(100)).await;
    assert!(worker.try_lock("k").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_ends_with_the_validity_of_the_giver() {
    let (nodes, giver, worker) = giver_and_worker().await;
    let fast = process(&nodes, "fast", MS(9_000)).await;
    let ticket = ticket(&giver, "k").await;
    // A clock that is far ahead only makes the time shorter.
    tokio::time::sleep(MS(898)).await;
    let error = fast.adopt(ticket.clone()).await.unwrap_err();
    assert!(matches!(error, AdoptError::Expired), "{error:?}");
    assert!(error.to_string().contains("the clocks differ"), "{error}");
    assert!(have(&nodes, "k", "@giver"), "no node was asked");
    tokio::time::sleep(MS(9_000)).await;
    assert_refused!(worker.adopt(ticket).await, AdoptError::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lock_gets_a_larger_fence_even_where_the_clock_is_behind() {
    let nodes = three_nodes();
    let ahead = process(&nodes, "ahead", Duration::from_secs(3)).await;
    let worker = process(&nodes, "worker", Duration::ZERO).await;
    let guard = ahead.lock("k").fenced(true).await.unwrap();
    let given = guard.fencing_token().unwrap();
    let fenced = guard.into_ticket().unwrap();
    assert_eq!(fenced.fencing_token(), Some(given));
    let guard = worker.adopt(fenced).await.unwrap();
    assert_eq!(guard.fencing_token(), given.next());
    guard.release().await;
    // A lock that was not fenced can be.
    let ticket = ticket(&worker, "k").await;
    let options = LockOptions::new().fenced(true);
    let guard = worker.adopt(ticket).options(options).await.unwrap();
    assert!(guard.fencing_token() > given.next());
}

#[tokio::test(start_paused = true)]
async fn locks_that_others_may_share_are_not_given_away() {
    let (nodes, giver, _worker) = giver_and_worker().await;
    for lock in [
        giver.lock_all(["a", "b"]),
        giver.semaphore("s", 2).acquire(),
        giver.rw_lock("rw").read(),
    ] {
        let error = lock.await.unwrap().into_ticket().unwrap_err();
        assert!(matches!(error, TicketError::Shared { guard } if guard.is_valid()));
    }
    let writer = giver.rw_lock("rw").write().await.unwrap();
    writer.downgrade().await.unwrap();
    let error = assert_refused!(writer.into_ticket(), TicketError::Shared { .. });
    drop(error); // and the guard in it
    let lost = unrenewed(giver.lock("k")).await;
    tokio::time::sleep(MS(10_000)).await;
    assert_refused!(lost.into_ticket(), TicketError::Lost(_));
    giver.shutdown(None).await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn an_adoption_without_a_majority_uses_up_only_the_nodes_that_it_reached() {
    let (nodes, giver, worker) = giver_and_worker().await;
    let ticket = ticket(&giver, "k").await;
    set_down(&nodes[1..], true);
    let outcome = worker.adopt(ticket.clone()).await;
    let attempts = assert_refused!(outcome, AdoptError::Lock(LockError::NoQuorum(it)) => it);
    assert_eq!(attempts.count, 1);
    set_down(&nodes[1..], false);
    all_vote(&worker).await;
    assert!(nodes[0].value("k").is_none(), "released");
    assert!(have(&nodes[1..], "k", "@giver"));
    let adopted = worker.adopt(ticket).await;
    let guard = adopted.expect("two of three still have it");
    // The first renewal sets the key where it is missing.
    tokio::time::sleep(MS(4_000)).await;
    assert!(have(&nodes, "k", "@worker") && guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_names_the_whole_key_and_can_be_used_once() {
    let nodes = three_nodes();
    let giver = built(over(&nodes).prefix("shop:")).await;
    let worker = built(over(&nodes).prefix("jobs:")).await;
    let ticket = ticket(&giver, "k").await;
    let guard = worker.adopt(ticket.clone()).await.unwrap();
    assert_eq!(guard.key().as_bytes(), b"shop:k");
    assert!(giver.try_lock("k").await.unwrap_err().is_contended());
    let attempts = assert_refused!(worker.adopt(ticket).await, AdoptError::Gone(it) => it);
    let objections: Vec<_> = attempts.nodes.iter().map(|it| &it.objection).collect();
    assert!(objections.len() >= 2);
    assert!(objections.iter().all(|it| **it == Objection::Lost));
}
