//! The errors of requests that cannot be served.

use futures::future::BoxFuture;
use redlock_tokio::{
    Clock, KeyError, LockError, LockOptions, MemoryNode, NodeError, OptionsError, Redlock,
    node::{Answer, Command, FreedNotifier, Session},
};

use super::client;
use crate::support::{
    MS,
    in_memory::{Opens, all_empty, over, settle, three_nodes},
};

/// A node that somebody has written before there were readers.
#[derive(Clone)]
struct Old(MemoryNode);

impl Session for Old {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let as_a_lock = |it: &Command| Command::new(it.key().clone(), it.operation());
        let batch: Vec<_> = batch.iter().map(as_a_lock).collect();
        self.0.execute(&batch)
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        self.0.watch(freed)
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_know_no_readers_let_one_in_at_a_time() {
    let nodes = three_nodes();
    let client = || {
        let old = nodes.iter().cloned().map(Old).map(Opens::new);
        Redlock::builder()
            .custom_nodes(old)
            .clock(Clock::tokio())
            .build()
    };
    let (one, other) = (client().await.unwrap(), client().await.unwrap());
    let (ours, theirs) = (one.rw_lock("k"), other.rw_lock("k"));
    let reader = ours.read().await.unwrap();
    assert!(ours.try_read().await.is_ok(), "it joins");
    assert!(theirs.try_read().await.is_err() && theirs.try_write().await.is_err());
    tokio::time::sleep(MS(20_000)).await;
    assert!(reader.is_valid());
    let waiting = tokio::spawn(theirs.write().into_future());
    settle().await;
    reader.release().await;
    let writer = waiting.await.unwrap().unwrap();
    writer.downgrade().await.unwrap();
    writer.release().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn wrong_requests_are_refused_by_name() {
    let redlock = client(&three_nodes()).await;
    let error = redlock.rw_lock("").try_read().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey(KeyError::Empty)));
    for name in ["redlock:readers:{a}", "redlock:wait:{a}"] {
        let error = redlock.try_lock(name).await.unwrap_err();
        assert!(matches!(
            error,
            LockError::InvalidKey(KeyError::Reserved { .. })
        ));
    }
    let error = redlock.rw_lock("k").read().fenced().await.unwrap_err();
    let expected = OptionsError::FencedReader;
    assert!(
        matches!(error, LockError::InvalidOptions(it) if it == expected),
        "{error}"
    );
    // A default for all locks is no request of this one.
    let fenced = over(&three_nodes()).fenced().build().await.unwrap();
    let reader = fenced.rw_lock("k").read().await.unwrap();
    assert_eq!(reader.fencing_token(), None);
    drop(reader);
    assert!(
        fenced
            .rw_lock("k")
            .write()
            .await
            .unwrap()
            .fencing_token()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_says_who_keeps_whom_out() {
    let nodes = three_nodes();
    let (one, other) = (client(&nodes).await, client(&nodes).await);
    let reader = one.rw_lock("k").read().await.unwrap();
    let error = other
        .rw_lock("k")
        .try_write()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("the lock is taken: readers or another client hold it"),
        "{error}"
    );
    drop(reader);
    let writer = one.rw_lock("k").write().await.unwrap();
    let error = other.rw_lock("k").try_read().await.unwrap_err().to_string();
    assert!(
        error.starts_with("the lock is taken: a writer or another client holds it"),
        "{error}"
    );
    let error = one.rw_lock("k").try_read().await.unwrap_err().to_string();
    assert!(
        error.starts_with("the lock is taken: a writer of this process holds it"),
        "{error}"
    );
    drop(writer);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_of_what_was_asked_for() {
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    nodes.iter().for_each(|node| node.set_down(true));
    let catalogue = redlock.rw_lock("catalogue");
    assert!(catalogue.read().wait(MS(300)).await.is_err());
    let fail_fast = LockOptions::new().fail_fast();
    for (lock, reads, writes, permits) in [
        (catalogue.read(), true, false, None),
        (catalogue.write(), false, true, None),
        (
            redlock.semaphore("exports", 2).acquire(),
            false,
            false,
            Some(2),
        ),
    ] {
        let Err(LockError::NoQuorum(attempts)) = lock.options(fail_fast).await else {
            panic!("no node answers")
        };
        let told = (attempts.by_reader(), attempts.by_writer(), attempts.permits);
        assert_eq!((told, attempts.count), ((reads, writes, permits), 0));
    }
}
