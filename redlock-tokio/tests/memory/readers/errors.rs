//! The errors of requests that cannot be served.

use redlock_tokio::{
    LockError, LockOptions, MemoryNode,
    errors::{KeyError, OptionsError},
    node::{Command, Session},
};

use crate::support::{
    MS, built,
    in_memory::{all_empty, blocked, client, fleet, over, set_down, three_nodes},
    scripted::{Reports, Scripted, over_custom},
};

/// A node that somebody has written before there were readers.
fn old(node: &MemoryNode) -> Scripted {
    let old = Scripted::new(node, |node, batch| {
        let as_a_lock = |it: &Command| Command::new(it.key().clone(), it.operation());
        node.execute(&batch.iter().map(as_a_lock).collect::<Vec<_>>())
    });
    old.reports(Reports::Arrive)
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
    tokio::time::sleep(MS(20_000)).await;
    assert!(reader.is_valid());
    let waiting = blocked(theirs.write()).await;
    reader.release().await;
    let writer = waiting.await.unwrap().unwrap();
    writer.downgrade().await.unwrap();
    writer.release().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn wrong_requests_are_refused_by_name() {
    let redlock = client(&three_nodes()).await;
    let outcome = redlock.rw_lock("").try_read().await;
    assert_refused!(outcome, LockError::InvalidKey(KeyError::Empty));
    for name in ["redlock:readers:{a}", "redlock:wait:{a}"] {
        let outcome = redlock.try_lock(name).await;
        assert_refused!(outcome, LockError::InvalidKey(KeyError::Reserved { .. }));
    }
    let outcome = redlock.rw_lock("k").read().fenced(true).await;
    assert_refused!(
        outcome,
        LockError::InvalidOptions(OptionsError::FencedReader)
    );
    // A default for all locks is no request of this one.
    let fenced = over(&three_nodes()).fenced(true).build().await.unwrap();
    let reader = fenced.rw_lock("k").read().await.unwrap();
    assert_eq!(reader.fencing_token(), None);
    drop(reader);
    let writer = fenced.rw_lock("k").write().await.unwrap();
    assert!(writer.fencing_token().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_error_says_who_keeps_whom_out() {
    let (_, [one, other]) = fleet().await;
    let reader = one.rw_lock("k").read().await.unwrap();
    let keeps_out = |error: LockError, words: &str| {
        let text = error.to_string();
        let expected = format!("the lock is taken: {words}");
        assert!(text.starts_with(&expected), "{text}");
    };
    let error = other.rw_lock("k").try_write().await.unwrap_err();
    keeps_out(error, "readers or another client hold it");
    drop(reader);
    let writer = one.rw_lock("k").write().await.unwrap();
    let error = other.rw_lock("k").try_read().await.unwrap_err();
    keeps_out(error, "a writer or another client holds it");
    let error = one.rw_lock("k").try_read().await.unwrap_err();
    keeps_out(error, "a writer of this process holds it");
    drop(writer);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_of_what_was_asked_for() {
    let (nodes, [redlock]) = fleet().await;
    set_down(&nodes, true);
    let catalogue = redlock.rw_lock("catalogue");
    assert!(catalogue.read().wait(MS(300)).await.is_err());
    let exports = redlock.semaphore("exports", 2);
    let fail_fast = LockOptions::new().fail_fast(true);
    for (lock, reads, writes, permits) in [
        (catalogue.read(), true, false, None),
        (catalogue.write(), false, true, None),
        (exports.acquire(), false, false, Some(2)),
    ] {
        let Err(LockError::NoQuorum(attempts)) = lock.options(fail_fast).await else {
            panic!("no node answers")
        };
        let told = (attempts.by_reader(), attempts.by_writer(), attempts.permits);
        assert_eq!((told, attempts.count), ((reads, writes, permits), 0));
    }
}
