//! Readers are in together, and a writer is in alone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::join_all;
use redlock_tokio::{Lock, MemoryNode, Redlock, RedlockRwLock, ReleaseOutcome};
use tokio::task::JoinSet;

use super::client_of_lone_readers;
use crate::support::{
    MS, acquired,
    in_memory::{all_empty, fleet, hold},
};

/// Three nodes, and clients whose readers join each other's leases, or do not.
async fn fleet_that_joins<const N: usize>(joins: bool) -> (Vec<MemoryNode>, [Redlock; N]) {
    let (nodes, clients) = fleet().await;
    if joins {
        return (nodes, clients);
    }
    let lone = join_all([(); N].map(|()| client_of_lone_readers(&nodes))).await;
    (nodes, lone.try_into().expect("as many as asked for"))
}

#[tokio::test(start_paused = true)]
async fn readers_share_the_lock_and_a_writer_has_it_alone() {
    for joins in [true, false] {
        let (nodes, clients) = fleet_that_joins::<2>(joins).await;
        let [one, other] = clients.each_ref().map(|it| it.rw_lock("catalogue"));
        let [first, second, third] = acquired([one.read(), one.read(), other.read()]).await;
        let readers = [first, second, third, other.try_read().await.unwrap()];
        for lock in [&one, &other] {
            let error = lock.try_write().await.unwrap_err();
            assert!(error.is_contended(), "{error}");
        }
        assert!(clients[0].try_lock("catalogue").await.is_err());
        assert!(readers.iter().all(|it| it.is_valid()));
        for reader in readers {
            assert_ne!(reader.release().await.outcome, ReleaseOutcome::NotHeld);
        }
        assert!(all_empty(&nodes), "the last one deletes the key");
        let writer = one.try_write().await.expect("the readers are gone");
        for lock in [&one, &other] {
            assert!(lock.try_read().await.unwrap_err().is_contended());
            assert!(lock.try_write().await.unwrap_err().is_contended());
        }
        writer.release().await;
        assert!(other.try_read().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn plain_locks_and_readers_keep_each_other_out() {
    let (nodes, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let plain = redlock.lock("catalogue").await.unwrap();
    assert!(catalogue.try_read().await.is_err() && catalogue.try_write().await.is_err());
    plain.release().await;
    let reader = catalogue.try_read().await.expect("it is free");
    assert!(redlock.try_lock("catalogue").await.is_err());
    assert!(redlock.try_lock("another").await.is_ok());
    reader.release().await;
    hold(&nodes, "catalogue", MS(1000));
    assert!(catalogue.try_read().await.is_err() && catalogue.try_write().await.is_err());
    let after = catalogue.read().await.expect("it has expired");
    assert!(after.is_valid());
}

/// A lock waits in one line, and a lock of readers in another. Each learns of the end of the other, although the nodes do
/// not notify the process that has made the change.
#[tokio::test(start_paused = true)]
async fn a_plain_lock_and_a_writer_of_one_process_follow_each_other() {
    let (_, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    for _ in 0..3 {
        let writer = catalogue.write().await.unwrap();
        let waiting = tokio::spawn(redlock.lock("catalogue").into_future());
        tokio::time::sleep(MS(500)).await;
        drop(writer);
        let plain = tokio::time::timeout(MS(100), waiting).await;
        let plain = plain.expect("at once").unwrap().unwrap();
        let waiting = tokio::spawn(catalogue.read().into_future());
        tokio::time::sleep(MS(500)).await;
        drop(plain);
        let reader = tokio::time::timeout(MS(100), waiting).await;
        drop(reader.expect("at once").unwrap().unwrap());
    }
}

/// Counts how many readers were in at once, and how often a writer was in beside another holder.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
    overlaps: AtomicUsize,
}

impl Inside {
    async fn work(&self, is_writer: bool) {
        let own = if is_writer {
            &self.writers
        } else {
            &self.readers
        };
        own.fetch_add(1, SeqCst);
        let [readers, writers] = [&self.readers, &self.writers].map(|it| it.load(SeqCst));
        self.most_readers.fetch_max(readers, SeqCst);
        let overlaps = writers > 0 && readers + writers > 1;
        self.overlaps.fetch_add(usize::from(overlaps), SeqCst);
        tokio::time::sleep(MS(3)).await;
        own.fetch_sub(1, SeqCst);
    }
}

/// Runs tasks of several processes, a quarter of which write. Returns the most readers at once, and the overlaps of a
/// writer. `read` makes the lock that a reader takes.
async fn crowd(
    clients: &[Redlock],
    read: fn(&RedlockRwLock, &Redlock, usize) -> Lock,
) -> (usize, usize) {
    let inside = Arc::new(Inside::default());
    let mut all = JoinSet::new();
    for task in 0..24 {
        let client = clients[task % clients.len()].clone();
        let inside = Arc::clone(&inside);
        all.spawn(async move {
            let lock = client.rw_lock("k");
            for _ in 0..5 {
                let is_writer = task % 4 == 0;
                let request = if is_writer {
                    lock.write()
                } else {
                    read(&lock, &client, task)
                };
                let guard = request.wait(MS(60_000)).await.expect("its turn");
                inside.work(is_writer).await;
                assert!(guard.is_valid());
                drop(guard);
                tokio::time::sleep(MS(1)).await;
            }
        });
    }
    all.join_all().await;
    let counts = [&inside.most_readers, &inside.overlaps];
    counts.map(|it| it.load(SeqCst)).into()
}

#[tokio::test(start_paused = true)]
async fn no_writer_is_in_beside_anybody_and_both_kinds_get_in() {
    for joins in [true, false] {
        let (nodes, clients) = fleet_that_joins::<3>(joins).await;
        let (most, overlaps) = crowd(&clients, |lock, _, _| lock.read()).await;
        assert_eq!(overlaps, 0);
        assert!(most > 3, "{most} readers at once");
        for client in &clients {
            client.shutdown(None).await;
        }
        assert!(all_empty(&nodes), "nothing is left behind");
    }
    // The control: readers that take another lock each are in beside a writer.
    let (_, clients) = fleet::<2>().await;
    let (_, overlaps) = crowd(&clients, |_, client, task| client.lock(format!("k{task}"))).await;
    assert!(overlaps > 0);
}
