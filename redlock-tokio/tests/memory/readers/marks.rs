//! A writer that waits keeps new readers out, for a while.

use std::time::Duration;

use redlock_tokio::Redlock;
use tokio::task::JoinSet;

use super::client_of_lone_readers;
use crate::support::{
    MS,
    in_memory::{client, fleet, keep_busy, settle, three_nodes},
};

/// Returns how long a writer waits while readers of another process come every millisecond and hold for 20 ms.
async fn wait_beside_busy_readers(is_writer: bool) -> Option<Duration> {
    let nodes = three_nodes();
    let (readers, writer) = (client_of_lone_readers(&nodes).await, client(&nodes).await);
    let mut crowd = JoinSet::new();
    for task in 0..20 {
        let lock = readers.rw_lock("catalogue");
        crowd.spawn(async move {
            tokio::time::sleep(MS(task)).await;
            keep_busy(|| lock.read(), MS(20)).await;
        });
    }
    tokio::time::sleep(MS(100)).await;
    let begin = tokio::time::Instant::now();
    let request = if is_writer {
        writer.rw_lock("catalogue").write()
    } else {
        writer.lock("catalogue")
    };
    let outcome = request.wait(MS(4000)).await;
    outcome.ok().map(|_| begin.elapsed())
}

/// With its control: a plain lock does not mark the key, and starves.
#[tokio::test(start_paused = true)]
async fn a_writer_gets_in_beside_busy_readers() {
    let waited = wait_beside_busy_readers(true).await;
    let waited = waited.expect("readers make way");
    assert!(waited < MS(500), "{waited:?}");
    assert_eq!(wait_beside_busy_readers(false).await, None);
}

/// A reader waits for one writer, and not for those that come after it.
#[tokio::test(start_paused = true)]
async fn a_reader_gets_in_beside_busy_writers() {
    let nodes = three_nodes();
    let mut crowd = JoinSet::new();
    for _ in 0..4 {
        let lock = client(&nodes).await.rw_lock("catalogue");
        crowd.spawn(async move { keep_busy(|| lock.write(), MS(20)).await });
    }
    let lock = client(&nodes).await.rw_lock("catalogue");
    for _ in 0..10 {
        let begin = tokio::time::Instant::now();
        let guard = lock.read().await.expect("it insists");
        assert!(begin.elapsed() < MS(2000), "{:?}", begin.elapsed());
        drop(guard);
        tokio::time::sleep(MS(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_leaves_no_mark() {
    let (nodes, [reader, writer]) = fleet().await;
    let held = reader.rw_lock("catalogue").read().await.unwrap();
    let waiting = writer.rw_lock("catalogue").write().wait(MS(60_000));
    assert!(tokio::time::timeout(MS(5000), waiting).await.is_err());
    settle().await;
    let others = client(&nodes).await;
    assert!(others.rw_lock("catalogue").try_read().await.is_ok());
    drop(held);
    settle().await;
    // While it waits, it keeps new readers out.
    let held = reader.rw_lock("catalogue").read().await.unwrap();
    let waiting = writer.rw_lock("catalogue").write().wait(MS(60_000));
    let waiting = tokio::spawn(waiting.into_future());
    for _ in 0..50 {
        tokio::time::sleep(MS(100)).await;
        assert!(others.rw_lock("catalogue").try_read().await.is_err());
    }
    drop(held);
    assert!(waiting.await.unwrap().is_ok());
}

/// The readers of both processes hold the lock when the writer comes.
#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_for_readers_of_its_own_process_keeps_out_those_of_others() {
    let nodes = three_nodes();
    let [own, other] =
        [client(&nodes).await, client(&nodes).await].map(|it| it.rw_lock("catalogue"));
    let held = [own.read().await.unwrap(), other.read().await.unwrap()];
    let waiting = tokio::spawn(own.write().into_future());
    tokio::time::sleep(MS(100)).await;
    assert!(other.try_read().await.is_err());
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    settle().await;
    assert!(other.try_read().await.is_ok());
}

/// Returns for how long a writer of another client keeps readers out after its wait has come to this end.
async fn mark_left_behind(end: impl AsyncFnOnce(Redlock)) -> Duration {
    let (nodes, [reader, others]) = fleet().await;
    let lock = reader.rw_lock("catalogue").read().max_hold(MS(600_000));
    let _held = lock.await.unwrap();
    end(client(&nodes).await).await;
    settle().await;
    let after = tokio::time::Instant::now();
    while others.rw_lock("catalogue").try_read().await.is_err() {
        tokio::time::sleep(MS(1)).await;
    }
    after.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_writer_leaves_no_mark_whether_its_time_is_over_or_its_client_is_shut_down() {
    let timed_out = mark_left_behind(async |writer| {
        let waiting = writer.rw_lock("catalogue").write().wait(MS(3000));
        assert!(waiting.await.is_err());
    });
    assert_eq!(timed_out.await, MS(0));
    let shut_down = mark_left_behind(async |writer| {
        let waiting = writer.rw_lock("catalogue").write().wait(MS(600_000));
        let waiting = tokio::spawn(waiting.into_future());
        tokio::time::sleep(MS(30_000)).await;
        writer.shutdown(None).await;
        assert!(waiting.await.unwrap().is_err());
    });
    assert_eq!(shut_down.await, MS(0));
}
