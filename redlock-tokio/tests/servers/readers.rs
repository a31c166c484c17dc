//! Readers and writers over real servers.

use std::time::{Duration, Instant};

use redlock_kit::RedisServers;
use redlock_tokio::{Lock, LockGuard, Redlock};
use tokio::time::timeout;

use crate::{
    fleet::{clients_over, clis, each, fleet},
    support::{Cli, MS, eventually},
};

/// A reader costs a script, one that joins it nothing, and a writer as much as a lock.
#[tokio::test]
async fn the_commands_of_readers_and_writers() {
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = servers.builder().handover_for(MS(60_000)).build().await;
    let catalogue = redlock.unwrap().rw_lock("catalogue");
    let cli = Cli::of(servers.get(0));
    let first = catalogue.read().await.unwrap();
    assert_eq!(cli.calls("evalsha"), 1);
    for _ in 0..100 {
        drop(catalogue.read().await.unwrap());
    }
    assert_eq!(cli.calls("evalsha"), 1, "they join");
    first.extend().await.unwrap();
    first.release().await;
    assert_eq!(cli.calls("evalsha"), 3);
    let sets = cli.calls("set");
    let writer = catalogue.write().await.unwrap();
    assert_eq!(cli.calls("set"), sets + 1);
    writer.downgrade().await.unwrap();
    writer.release().await;
    assert_eq!(cli.calls("evalsha"), 5);
}

/// Lets `next` wait for what `held` has. Returns what it got, and how long that took after a release.
async fn follow(held: LockGuard, next: Lock) -> (LockGuard, Duration) {
    let waiting = tokio::spawn(next.wait(MS(20_000)).into_future());
    // Long enough that the next look without a notification is a second away.
    tokio::time::sleep(MS(1500)).await;
    let begin = Instant::now();
    drop(held);
    let guard = waiting.await.unwrap().expect("it is free");
    (guard, begin.elapsed())
}

/// Servers notify a writer of the last reader that leaves, and a reader of the writer. A server does not notify the
/// connection that has made a change, so those of one process are told by each other.
#[tokio::test]
async fn those_that_wait_are_notified() {
    let (_servers, [one, other]) = fleet(5).await;
    let (ours, theirs) = (one.rw_lock("catalogue"), other.rw_lock("catalogue"));
    let follow_each_other = async |writer: &dyn Fn() -> Lock| {
        let mut waits = Vec::new();
        let mut reader = ours.read().await.unwrap();
        for _ in 0..3 {
            let (writer, waited) = follow(reader, writer()).await;
            waits.push(waited);
            let (next, waited) = follow(writer, ours.read()).await;
            waits.push(waited);
            reader = next;
        }
        waits.sort_unstable();
        assert!(waits[3] < MS(100), "{waits:?}");
    };
    follow_each_other(&|| theirs.write()).await;
    follow_each_other(&|| one.lock("catalogue")).await;
}

/// Returns whether a writer has marked the key on all nodes.
fn is_marked(nodes: &[Cli]) -> bool {
    let marks = each(nodes, &["EXISTS", "redlock:wait:{catalogue}"]);
    marks.iter().all(|it| it == "1")
}

/// Without notifications, those that wait look from time to time.
#[tokio::test]
async fn readers_and_writers_over_resp2() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let clients: [Redlock; 3] = clients_over(&servers, "?protocol=resp2").await;
    let [one, other, third] = clients.each_ref().map(|it| it.rw_lock("catalogue"));
    for _ in 0..3 {
        let readers = [one.read().await.unwrap(), other.read().await.unwrap()];
        let waiting = tokio::spawn(other.write().into_future());
        eventually("the writer marks the key", || is_marked(&nodes)).await;
        // The others could join the reader of their process. A mark ends if the writer comes late to its next look.
        let kept_out = async { while third.try_read().await.is_ok() {} };
        timeout(MS(10_000), kept_out).await.expect("no new readers");
        assert!(!waiting.is_finished());
        drop(readers);
        let writer = waiting.await.unwrap().expect("the readers are gone");
        let waiting = tokio::spawn(one.read().into_future());
        tokio::time::sleep(MS(300)).await;
        assert!(!waiting.is_finished());
        writer.downgrade().await.unwrap();
        drop(waiting.await.unwrap().expect("readers may come"));
        writer.release().await;
    }
}

/// A mark lives for up to two seconds. Readers do not wait for its end.
#[tokio::test]
async fn readers_are_notified_of_a_writer_that_gives_up() {
    let (servers, [one, other, third]) = fleet(5).await;
    let nodes = clis(&servers);
    let held = one.rw_lock("catalogue").read().await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let writer = other.rw_lock("catalogue").write().wait(MS(20_000));
        let writer = tokio::spawn(writer.into_future());
        eventually("the writer waits", || is_marked(&nodes)).await;
        let reader = third.rw_lock("catalogue").read().wait(MS(20_000));
        let reader = tokio::spawn(reader.into_future());
        // Long enough that the looks of both are a second apart.
        tokio::time::sleep(MS(4000)).await;
        // A mark outlives the time of the next look by 0.1 s. On a busy machine the writer may look later.
        let was_kept_out = !reader.is_finished();
        let begin = Instant::now();
        writer.abort();
        drop(reader.await.unwrap().expect("nobody keeps it out"));
        if was_kept_out {
            waits.push(begin.elapsed());
        }
        if waits.len() == 3 {
            break;
        }
    }
    assert_eq!(waits.len(), 3, "readers that a writer kept out");
    waits.sort_unstable();
    assert!(waits[1] < MS(100), "{waits:?}");
    assert!(held.is_valid());
}
