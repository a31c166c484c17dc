//! A writer becomes a reader.

use redlock_tokio::{Acquisition, ReleaseOutcome, errors::DowngradeError};

use crate::support::{
    MS,
    in_memory::{all_empty, blocked, client, fleet, over, set_down, settle, three_nodes},
};

#[tokio::test(start_paused = true)]
async fn a_downgraded_writer_lets_readers_in_and_keeps_writers_out() {
    let (nodes, [redlock, other]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let guard = catalogue.write().fenced(true).await.unwrap();
    let waiting = tokio::spawn(catalogue.read().into_future());
    let next = blocked(other.rw_lock("catalogue").write().wait(MS(60_000))).await;
    assert!(guard.fencing_token().is_some());
    guard.downgrade().await.expect("all nodes are up");
    assert_eq!(guard.fencing_token(), None);
    guard.downgrade().await.expect("it stays as it is");
    let reader = waiting.await.unwrap().unwrap();
    assert_eq!(reader.token(), guard.token(), "it has joined");
    tokio::time::sleep(MS(20_000)).await;
    assert!(guard.is_valid() && reader.is_valid() && !next.is_finished());
    drop(guard);
    settle().await;
    assert!(reader.is_valid());
    assert_eq!(reader.release().await.outcome, ReleaseOutcome::Released);
    let next = next.await.unwrap().unwrap();
    assert!(next.is_valid());
    next.release().await;
    redlock.shutdown(None).await;
    other.shutdown(None).await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn readers_of_other_processes_are_notified_of_a_downgrade() {
    let (_, [one, other]) = fleet().await;
    let guard = one.rw_lock("catalogue").write().await.unwrap();
    let waiting = tokio::spawn(other.rw_lock("catalogue").read().into_future());
    // Long enough that the next look without a notification is a second away.
    tokio::time::sleep(MS(3200)).await;
    assert!(!waiting.is_finished());
    guard.downgrade().await.unwrap();
    let begin = tokio::time::Instant::now();
    let reader = waiting.await.unwrap().expect("readers may come");
    assert!(begin.elapsed() < MS(50), "{:?}", begin.elapsed());
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn only_a_writer_can_be_downgraded() {
    let (nodes, [redlock]) = fleet().await;
    for lock in [
        redlock.lock("a"),
        redlock.lock_all(["b", "c"]),
        redlock.semaphore("d", 2).acquire(),
        redlock.rw_lock("e").read(),
    ] {
        let guard = lock.await.unwrap();
        let error = guard.downgrade().await.unwrap_err();
        assert_eq!(error, DowngradeError::NotAWriter);
        assert!(guard.is_valid());
    }
    let guard = redlock.rw_lock("f").write().await.unwrap();
    set_down(&nodes, true);
    let error = guard.downgrade().await.unwrap_err();
    assert!(error.to_string().starts_with("no majority"), "{error}");
    set_down(&nodes, false);
    tokio::time::sleep(MS(5000)).await;
    assert!(guard.is_valid());
    let reader = client(&nodes).await.rw_lock("f").try_read().await;
    assert!(reader.is_ok(), "renewal has downgraded it");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_keeps_what_a_longer_extension_beside_it_has_asked_for() {
    let nodes = three_nodes();
    let redlock = over(&nodes).max_ttl(MS(90_000)).build().await.unwrap();
    redlock.ready(MS(100_000)).await.unwrap();
    let guard = redlock.rw_lock("catalogue").write().await.unwrap();
    let (extended, downgraded) = tokio::join!(guard.extend_for(MS(60_000)), guard.downgrade());
    extended.unwrap();
    downgraded.unwrap();
    assert!(guard.remaining() > MS(59_000), "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_was_downgraded_still_says_that_it_was_handed_its_lock() {
    let (_, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.write().await.unwrap();
    let second = blocked(catalogue.write()).await;
    drop(first);
    let second = second.await.unwrap().unwrap();
    second.downgrade().await.unwrap();
    let acquisition = second.acquisition();
    assert!(matches!(acquisition, Acquisition::HandedOver { .. }));
    let reader = catalogue.read().await.unwrap();
    let acquisition = reader.acquisition();
    assert!(matches!(acquisition, Acquisition::Joined { .. }));
}
