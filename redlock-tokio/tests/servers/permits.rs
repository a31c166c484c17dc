//! Permits over real servers.

use std::collections::BTreeMap;

use redlock_tokio::Acquisition;

use crate::{
    fleet::{clis, fleet},
    support::{Cli, acquired, eventually, waiting_at},
};

#[tokio::test]
async fn permits_are_keys_of_their_own_that_a_server_shows() {
    let (servers, [redlock]) = fleet(3).await;
    let exports = redlock.semaphore("exports", 2);
    let permits = acquired([exports.acquire(), exports.acquire()]).await;
    let cli = Cli::of(servers.get(0));
    for permit in &permits {
        let key = format!("exports:slot:{}", permit.slot().unwrap());
        let value = || cli.get(&key) == Some(permit.value());
        eventually("the slot has the token", value).await;
    }
    let error = exports.try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    // By hand, as an operator frees a lock.
    assert_eq!(cli.run(&["DBSIZE"]), "2");
    drop(permits);
    eventually("nothing is left", || cli.run(&["DBSIZE"]) == "0").await;
}

/// Where a slot is free that the first attempt has not asked for, a look and another attempt find it.
#[tokio::test]
async fn an_attempt_at_a_taken_slot_is_followed_by_one_at_a_free_slot() {
    let (_servers, [one, other]) = fleet(3).await;
    let mut attempts = BTreeMap::<u32, usize>::new();
    for round in 0..20 {
        let key = format!("exports-{round}");
        let held = one.semaphore(&key, 2).acquire().await.unwrap();
        let second = other.semaphore(&key, 2).try_acquire().await;
        let second = second.expect("one is free");
        assert_ne!(second.slot(), held.slot());
        if let Acquisition::Granted { attempts: made, .. } = second.acquisition() {
            *attempts.entry(made).or_default() += 1;
        }
    }
    assert!(attempts.keys().eq(&[1, 2]), "{attempts:?}");
}

#[tokio::test]
async fn a_waiter_is_notified_of_any_slot_that_becomes_free() {
    let (servers, [holder, waiter]) = fleet(5).await;
    let [ours, theirs] = [holder, waiter].map(|it| it.semaphore("exports", 3));
    let nodes = clis(&servers);
    let held = acquired([(); 3].map(|()| ours.acquire())).await;
    let mut held = Vec::from(held);
    for _ in 0..10 {
        let waiting = waiting_at(&nodes, theirs.acquire()).await;
        let freed = held.swap_remove(0);
        let slot = freed.slot();
        freed.release().await;
        // Without a notification the next look would be at random.
        let got = waiting.await.unwrap().expect("a permit is free");
        assert_eq!(got.slot(), slot);
        got.release().await;
        held.push(ours.acquire().await.unwrap());
    }
}
