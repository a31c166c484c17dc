//! Readers and writers, over nodes in memory, by tokio's clock.

use futures::future::try_join_all;
use redlock_tokio::{
    Acquisition, LockError, LockOptions, LossReason, MemoryNode, ReleaseOutcome,
    errors::{DowngradeError, OptionsError},
    node::{Command, Session},
};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::support::{
    MS, acquired, assert_says, built,
    in_memory::{all_empty, blocked, client, fleet, over, set_down, settle, three_nodes},
    scripted::{Reports, Scripted, over_custom},
    unrenewed,
};

/// A lease is open for new readers for the time of a handover. After that they ask the nodes.
#[tokio::test(start_paused = true)]
async fn later_readers_ask_the_nodes_beside_those_that_hold() {
    let nodes = three_nodes();
    let redlock = built(over(&nodes).handover_for(MS(30))).await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.read().await.unwrap();
    sleep(MS(29)).await;
    let second = catalogue.read().await.unwrap();
    assert_eq!(second.token(), first.token());
    sleep(MS(1)).await;
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

/// A writer waits for the readers before it, and hands over to the next writer. Later readers wait for both.
#[tokio::test(start_paused = true)]
async fn the_queue_of_a_process_keeps_the_order_of_readers_and_writers() {
    let (_, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let reader = catalogue.read().await.unwrap();
    let first = blocked(catalogue.write()).await;
    let second = blocked(catalogue.write()).await;
    let later = blocked(catalogue.read()).await;
    let last = blocked(catalogue.read()).await;
    assert_eq!(redlock.queue().waiting, 3, "the first writer asks already");
    assert!(catalogue.try_read().await.unwrap_err().is_contended());
    drop(reader);
    let first = first.await.unwrap().unwrap();
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let second = second.await.unwrap().unwrap();
    assert!(!later.is_finished() && !last.is_finished());
    second.downgrade().await.unwrap();
    let acquisition = second.acquisition();
    assert!(matches!(acquisition, Acquisition::HandedOver { .. }));
    let (later, last) = (later.await.unwrap().unwrap(), last.await.unwrap().unwrap());
    let tokens = [later.token(), last.token()];
    assert_eq!(tokens, [second.token(); 2], "both have joined");
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

#[tokio::test(start_paused = true)]
async fn a_reader_that_dies_keeps_writers_out_for_its_own_ttl() {
    let (nodes, [dead, alive]) = fleet().await;
    // It renews nothing, and releases nothing while the test runs.
    let _forgotten = unrenewed(dead.rw_lock("catalogue").read().ttl(MS(2000))).await;
    let other = alive.rw_lock("catalogue").read().await.unwrap();
    sleep(MS(1000)).await;
    other.extend().await.unwrap();
    let writer = client(&nodes).await;
    let begin = Instant::now();
    drop(other);
    let guard = writer.rw_lock("catalogue").write().await.unwrap();
    let waited = begin.elapsed();
    assert!(waited > MS(900) && waited < MS(1100), "{waited:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_a_lost_lock_learns_of_the_loss() {
    for notices_first in [false, true] {
        let (nodes, [redlock]) = fleet().await;
        let catalogue = redlock.rw_lock("catalogue");
        let [one, _other] = acquired([catalogue.read(), catalogue.read()]).await;
        set_down(&nodes, true);
        let left = one.remaining();
        let clone = one.hold().view();
        match notices_first {
            true => sleep(left + MS(1)).await,
            // No timer runs before the guard is dropped.
            false => advance(left + MS(1)).await,
        }
        drop(one);
        let told = timeout(MS(60_000), clone.lost()).await;
        assert_eq!(told, Ok(LossReason::Expired));
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_leaves_no_mark() {
    for end in ["dropped", "timed out", "shut down"] {
        let (_, [reader, writer, others]) = fleet().await;
        let lock = reader.rw_lock("catalogue").read().max_hold(MS(600_000));
        let _held = lock.await.unwrap();
        let wait = if end == "timed out" { 5000 } else { 60_000 };
        let waiting = blocked(writer.rw_lock("catalogue").write().wait(MS(wait))).await;
        let try_read = async || others.rw_lock("catalogue").try_read().await.is_ok();
        // While it waits, it keeps new readers out.
        for _ in 0..49 {
            sleep(MS(100)).await;
            assert!(!try_read().await);
        }
        match end {
            "dropped" => waiting.abort(),
            "timed out" => sleep(MS(100)).await,
            _ => drop(writer.shutdown(None).await),
        }
        settle().await;
        assert!(try_read().await, "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgraded_writer_lets_readers_in_and_keeps_writers_out() {
    let (nodes, [redlock, other]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let guard = catalogue.write().fenced(true).await.unwrap();
    let waiting = tokio::spawn(catalogue.read().into_future());
    let elsewhere = tokio::spawn(other.rw_lock("catalogue").read().into_future());
    // Long enough that the next look without a notification is a second away.
    sleep(MS(3200)).await;
    assert!(guard.fencing_token().is_some() && !elsewhere.is_finished());
    guard.downgrade().await.expect("all nodes are up");
    let begin = Instant::now();
    assert_eq!(guard.fencing_token(), None);
    guard.downgrade().await.expect("it stays as it is");
    let reader = waiting.await.unwrap().unwrap();
    assert_eq!(reader.token(), guard.token(), "it has joined");
    drop(elsewhere.await.unwrap().expect("readers may come"));
    assert!(begin.elapsed() < MS(50), "{:?}", begin.elapsed());
    let next = blocked(other.rw_lock("catalogue").write().wait(MS(60_000))).await;
    sleep(MS(20_000)).await;
    assert!(guard.is_valid() && reader.is_valid() && !next.is_finished());
    drop(guard);
    settle().await;
    assert!(reader.is_valid());
    assert_eq!(reader.release().await.outcome, ReleaseOutcome::Released);
    next.await.unwrap().unwrap().release().await;
    assert!(all_empty(&nodes));
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
        let outcome = guard.downgrade().await;
        assert_eq!(outcome, Err(DowngradeError::NotAWriter));
        assert!(guard.is_valid());
    }
    let guard = redlock.rw_lock("f").write().await.unwrap();
    set_down(&nodes, true);
    let error = guard.downgrade().await.unwrap_err();
    assert!(error.to_string().starts_with("no majority"), "{error}");
    set_down(&nodes, false);
    sleep(MS(5000)).await;
    assert!(guard.is_valid());
    let reader = client(&nodes).await.rw_lock("f").try_read().await;
    assert!(reader.is_ok(), "renewal has downgraded it");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_know_no_readers_let_one_in_at_a_time() {
    let nodes = three_nodes();
    let client = || built(over_custom(nodes.iter().map(old)));
    let (one, other) = (client().await, client().await);
    let (ours, theirs) = (one.rw_lock("k"), other.rw_lock("k"));
    let reader = ours.read().await.unwrap();
    assert!(ours.try_read().await.is_ok(), "it joins");
    assert!(theirs.try_read().await.is_err() && theirs.try_write().await.is_err());
    sleep(MS(20_000)).await;
    assert!(reader.is_valid());
    let waiting = blocked(theirs.write()).await;
    reader.release().await;
    let writer = waiting.await.unwrap().unwrap();
    writer.downgrade().await.unwrap();
    writer.release().await;
    assert!(all_empty(&nodes));
}

/// A node that somebody has written before there were readers.
fn old(node: &MemoryNode) -> Scripted {
    let old = Scripted::new(node, |node, batch| {
        let as_a_lock = |it: &Command| Command::new(it.key().clone(), it.operation());
        node.execute(&batch.iter().map(as_a_lock).collect::<Vec<_>>())
    });
    old.reports(Reports::Arrive)
}

#[tokio::test(start_paused = true)]
async fn a_reader_has_no_fencing_token() {
    let redlock = client(&three_nodes()).await;
    let outcome = redlock.rw_lock("k").read().fenced(true).await;
    assert_refused!(
        outcome,
        LockError::InvalidOptions(OptionsError::FencedReader)
    );
    // A default for all locks is no request of this one.
    let fenced = built(over(&three_nodes()).fenced(true)).await;
    let reader = fenced.rw_lock("k").read().await.unwrap();
    assert_eq!(reader.fencing_token(), None);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_who_keeps_whom_out() {
    let (_, [one, other]) = fleet().await;
    let (ours, theirs) = (one.rw_lock("k"), other.rw_lock("k"));
    let reader = ours.read().await.unwrap();
    let error = theirs.try_write().await.unwrap_err();
    assert_says(
        &error,
        "the lock is taken: readers or another client hold it",
    );
    drop(reader);
    let _writer = ours.write().await.unwrap();
    let error = theirs.try_read().await.unwrap_err();
    assert_says(
        &error,
        "the lock is taken: a writer or another client holds it",
    );
    let error = ours.try_read().await.unwrap_err();
    assert_says(
        &error,
        "the lock is taken: a writer of this process holds it",
    );
}
