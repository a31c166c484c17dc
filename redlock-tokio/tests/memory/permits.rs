//! Permits of a semaphore, over nodes in memory, by tokio's clock.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use redlock_tokio::{Acquisition, MemoryNode, Redlock, ReleaseOutcome};
use tokio::task::JoinSet;

/// The stack of a test has no room for so many calls within each other.
const MANY: usize = 5_000;

use crate::support::{
    MS, acquired, built,
    in_memory::{blocked, client, fleet, hold, paused_runtime, three_nodes},
    scripted::{Scripted, over_custom},
};

#[tokio::test(start_paused = true)]
async fn each_holder_has_a_slot_of_its_own_and_no_more_hold_than_there_are_permits() {
    let (_, clients) = fleet::<2>().await;
    let mut permits = Vec::new();
    for number in 0..4 {
        let exports = clients[number % 2].semaphore("exports", 4);
        permits.push(exports.try_acquire().await.expect("one is free"));
    }
    let slots: BTreeSet<_> = permits.iter().map(|permit| permit.slot()).collect();
    assert_eq!(slots, (0..4).map(Some).collect());
    assert_eq!(permits[0].key().as_bytes(), b"exports");
    for client in &clients {
        let exports = client.semaphore("exports", 4);
        let error = exports.try_acquire().await.unwrap_err();
        assert!(error.is_contended());
        let text = error.to_string();
        assert!(text.starts_with("each of 4 permits is taken"), "{text}");
    }
    // It has nothing to do with a lock.
    let lock = clients[0].try_lock("exports").await.unwrap();
    assert_eq!(lock.slot(), None);
    let freed = permits.swap_remove(1);
    let slot = freed.slot();
    assert_eq!(freed.release().await.outcome, ReleaseOutcome::Released);
    let exports = clients[0].semaphore("exports", 4);
    let again = exports.try_acquire().await.expect("a look shows it");
    assert_eq!(again.slot(), slot);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_given_back_goes_to_the_next_in_line() {
    let (_, [redlock]) = fleet().await;
    let exports = redlock.semaphore("exports", 2);
    let [first, second] = acquired([exports.acquire(), exports.acquire()]).await;
    let slot = first.slot();
    let waiting = blocked(exports.acquire()).await;
    assert_eq!(redlock.queue().waiting, 1);
    let old = first.hold().view();
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let third = waiting.await.unwrap().unwrap();
    assert_eq!(third.slot(), slot);
    let acquisition = third.acquisition();
    assert!(matches!(acquisition, Acquisition::HandedOver { .. }));
    assert!(third.is_valid() && second.is_valid() && !old.is_valid());
}

/// Each process wants half of the permits, so they are never enough. Those that come first hand theirs over and take them
/// again as long as they may.
#[tokio::test(start_paused = true)]
async fn processes_that_come_late_get_as_many_permits_as_others() {
    let nodes = three_nodes();
    let entries = [(); 4].map(|()| Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for entries in &entries {
        let exports = distant_client(&nodes).await.semaphore("exports", 40);
        for _ in 0..20 {
            let (exports, entries) = (exports.clone(), entries.clone());
            tasks.spawn(async move {
                loop {
                    let _permit = exports.acquire().wait(MS(60_000)).await.unwrap();
                    entries.fetch_add(1, SeqCst);
                    tokio::time::sleep(MS(10)).await;
                }
            });
        }
        tokio::time::sleep(MS(50)).await;
    }
    tokio::time::sleep(MS(4000)).await;
    let mut entries = entries.map(|it| it.load(SeqCst));
    entries.sort_unstable();
    let [least, .., most] = entries;
    assert!(2 * least > most && least > 500, "{entries:?}");
}

/// The process that has one is nearer, and would be faster.
#[tokio::test(start_paused = true)]
async fn a_process_that_has_a_permit_lets_one_that_has_none_go_first() {
    // Chance decides which of two that may both try is the first.
    for _ in 0..20 {
        let nodes = three_nodes();
        let [other, near] = [client(&nodes).await, client(&nodes).await];
        let far = distant_client(&nodes).await;
        let [other, near, far] = [other, near, far].map(|it| it.semaphore("exports", 2));
        let [freed, _held] = acquired([other.acquire(), near.acquire()]).await;
        let far = blocked(far.acquire()).await;
        tokio::time::sleep(MS(100)).await;
        let near = blocked(near.acquire()).await;
        freed.release().await;
        tokio::time::sleep(MS(100)).await;
        assert!(far.is_finished() && !near.is_finished());
    }
}

/// Other requests do not have to wait until a request that met a taken slot has got a free one.
#[tokio::test(start_paused = true)]
async fn a_permit_is_free_while_a_neighbour_asks_again() {
    let nodes = three_nodes();
    let redlock = distant_client(&nodes).await;
    let exports = redlock.semaphore("exports", 8);
    let first = exports.acquire().await.unwrap();
    let taken = format!("exports:slot:{}", first.slot().unwrap());
    first.release().await;
    hold(&nodes, &taken, MS(10_000));
    // The first attempt, at the slot that the process had last, a look, and another attempt.
    let neighbour = tokio::spawn(exports.acquire().into_future());
    tokio::time::sleep(MS(12)).await;
    assert!(!neighbour.is_finished());
    let permit = exports.try_acquire().await.expect("six slots are free");
    let neighbour = neighbour.await.unwrap().unwrap();
    assert_ne!(permit.slot(), neighbour.slot());
}

/// Two requests of a process wait, and one of them watches both slots. The other one may be dropped, or the first while
/// it asks for the slot. The nodes do not notify the process of its own release.
#[tokio::test(start_paused = true)]
async fn a_permit_that_becomes_free_goes_to_one_of_those_that_wait_whoever_is_dropped() {
    for freed in [0, 1] {
        for dropped in [None, Some(0), Some(1)] {
            let nodes = three_nodes();
            let (holder, waiter) = (client(&nodes).await, distant_client(&nodes).await);
            let exports = holder.semaphore("exports", 2);
            let mut held = Vec::from(acquired([exports.acquire(), exports.acquire()]).await);
            held.sort_by_key(|it| it.slot());
            let exports = waiter.semaphore("exports", 2);
            let wait = || tokio::spawn(exports.acquire().wait(MS(60_000)).into_future());
            let mut waiting = vec![wait(), wait()];
            tokio::time::sleep(MS(5000)).await;
            held.remove(freed).release().await;
            tokio::time::sleep(MS(2)).await;
            if let Some(dropped) = dropped {
                waiting.remove(dropped).abort();
            }
            tokio::time::sleep(MS(100)).await;
            assert_eq!(waiting.iter().filter(|it| it.is_finished()).count(), 1);
        }
    }
}

/// A client of nodes whose answers take 5 ms.
async fn distant_client(nodes: &[MemoryNode]) -> Redlock {
    let distant = nodes.iter().map(|it| Scripted::late(it, MS(5)));
    built(over_custom(distant)).await
}

/// What the end of one permit means for others of the process is done one after the other, however many end at once.
#[test]
fn thousands_of_permits_end_with_their_runtime() {
    let runtime = paused_runtime();
    let permits = runtime.block_on(async {
        let (_, [redlock]) = fleet().await;
        let mut permits = Vec::new();
        for number in 0..MANY {
            let semaphore = redlock.semaphore(format!("exports:{number}"), 2);
            permits.push(semaphore.acquire().await.unwrap());
        }
        permits
    });
    drop(runtime);
    assert!(permits.iter().all(|permit| !permit.is_valid()));
}
