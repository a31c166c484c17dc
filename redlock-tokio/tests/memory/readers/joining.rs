//! The requests of one process share a lease, or wait in line.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use redlock_tokio::{Acquisition, LockGuard, LockOptions, ReleaseOutcome};
use tokio::task::JoinSet;

use crate::support::{
    MS,
    in_memory::{all_empty, blocked, fleet, over, set_down, settle, three_nodes},
};

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_soon_after_another_asks_no_node() {
    let (nodes, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.read().await.unwrap();
    assert!(matches!(first.acquisition(), Acquisition::Granted { .. }));
    set_down(&nodes, true);
    let mut joined = Vec::new();
    for _ in 0..3 {
        joined.push(catalogue.try_read().await.expect("no node is asked"));
    }
    set_down(&nodes, false);
    let last = joined.last().unwrap();
    let text = last.acquisition().to_string();
    assert!(text.starts_with("shared within this process"), "{text}");
    assert_eq!(last.token(), first.token());
    let old = first.hold().clone();
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    assert!(!old.is_valid(), "it has left");
    assert!(old.extend().await.is_err(), "and can do nothing more");
    assert!(joined.iter().all(|it| it.is_valid()));
    tokio::time::sleep(MS(20_000)).await;
    assert!(joined.iter().all(|it| it.is_valid()), "renewal goes on");
    let last = joined.pop().unwrap();
    drop(joined);
    settle().await;
    assert!(last.is_valid() && !all_empty(&nodes));
    assert_eq!(last.release().await.outcome, ReleaseOutcome::Released);
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn readers_that_ask_at_once_ask_once() {
    let (nodes, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let mut all = JoinSet::new();
    for _ in 0..1000 {
        all.spawn(catalogue.read().into_future());
    }
    let guards = all.join_all().await.into_iter().map(Result::unwrap);
    let guards: Vec<_> = guards.collect();
    let tokens: BTreeSet<_> = guards.iter().map(|it| it.value()).collect();
    assert_eq!(tokens.len(), 1);
    let granted = |it: &&LockGuard| matches!(it.acquisition(), Acquisition::Granted { .. });
    assert_eq!(guards.iter().filter(granted).count(), 1);
    drop(guards);
    redlock.shutdown(None).await;
    assert!(all_empty(&nodes));
}

/// A lease is open for new readers for the time of a handover. After that they ask the nodes.
#[tokio::test(start_paused = true)]
async fn later_readers_ask_the_nodes_beside_those_that_hold() {
    let nodes = three_nodes();
    let redlock = over(&nodes).handover_for(MS(30)).build().await.unwrap();
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.read().await.unwrap();
    tokio::time::sleep(MS(29)).await;
    let second = catalogue.read().await.unwrap();
    assert_eq!(second.token(), first.token());
    tokio::time::sleep(MS(1)).await;
    let third = catalogue.read().await.unwrap();
    assert_ne!(third.token(), first.token());
    let no_handover = LockOptions::new().handover(false);
    let alone = catalogue.read().options(no_handover).await.unwrap();
    let other_ttl = catalogue.read().ttl(MS(3000)).await.unwrap();
    assert_ne!(alone.token(), third.token());
    assert_ne!(other_ttl.token(), third.token());
    drop((first, second));
    settle().await;
    assert!(third.is_valid() && alone.is_valid() && other_ttl.is_valid());
}

/// In one process, a writer waits for the readers before it, and later readers wait for the writer.
#[tokio::test(start_paused = true)]
async fn the_line_of_a_process_keeps_the_order() {
    let (_, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.read().await.unwrap();
    let writer = blocked(catalogue.write()).await;
    let later = tokio::spawn(catalogue.read().into_future());
    let last = blocked(catalogue.read()).await;
    assert_eq!(redlock.queue().waiting, 2, "the writer asks already");
    assert!(catalogue.try_read().await.unwrap_err().is_contended());
    drop(first);
    let writer = writer.await.unwrap().unwrap();
    assert!(!later.is_finished() && !last.is_finished());
    drop(writer);
    let (later, last) = (later.await.unwrap().unwrap(), last.await.unwrap().unwrap());
    assert_eq!(later.token(), last.token(), "one of them asked");
}

#[tokio::test(start_paused = true)]
async fn a_writer_hands_over_to_the_next_writer_but_not_to_a_reader() {
    let (_, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.write().await.unwrap();
    let second = blocked(catalogue.write()).await;
    let reader = blocked(catalogue.read()).await;
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.release().await.outcome, ReleaseOutcome::Released);
    let reader = reader.await.unwrap().unwrap();
    assert!(matches!(reader.acquisition(), Acquisition::Granted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_may_not_wait_passes_readers_that_do() {
    let (_, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let readers = (0..20).map(async |index| match index % 2 {
        0 => catalogue.read().await,
        _ => catalogue.try_read().await,
    });
    let _all = try_join_all(readers).await.unwrap();
}
