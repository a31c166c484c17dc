//! Readers and writers, over nodes in memory, by tokio's clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_tokio::{
    Acquisition, Clock, DowngradeError, KeyError, LockError, LockOptions, LossReason, MemoryNode,
    NodeError, OptionsError, Redlock, RedlockRwLock, ReleaseOutcome, Ttl,
    node::{Answer, Command, FreedNotifier, Session},
};
use tokio::task::JoinSet;

use crate::support::{
    MS,
    in_memory::{Opens, all_empty, over, settle, three_nodes},
};

async fn client(nodes: &[MemoryNode]) -> Redlock {
    over(nodes).build().await.expect("nodes in memory")
}

/// A client whose readers do not share leases: each of them asks the nodes.
async fn client_of_lone_readers(nodes: &[MemoryNode]) -> Redlock {
    over(nodes).handover_for(MS(0)).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn readers_share_the_lock_and_a_writer_has_it_alone() {
    for joins in [true, false] {
        let nodes = three_nodes();
        let clients = if joins {
            [client(&nodes).await, client(&nodes).await]
        } else {
            [
                client_of_lone_readers(&nodes).await,
                client_of_lone_readers(&nodes).await,
            ]
        };
        let [one, other] = clients.each_ref().map(|it| it.rw_lock("catalogue"));
        let readers = [
            one.read().await.unwrap(),
            one.read().await.unwrap(),
            other.read().await.unwrap(),
            other.try_read().await.unwrap(),
        ];
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
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let plain = redlock.lock("catalogue").await.unwrap();
    assert!(catalogue.try_read().await.is_err() && catalogue.try_write().await.is_err());
    plain.release().await;
    let reader = catalogue.try_read().await.expect("it is free");
    assert!(redlock.try_lock("catalogue").await.is_err());
    assert!(redlock.try_lock("another").await.is_ok());
    reader.release().await;
    let foreign = Ttl::new(MS(1000)).unwrap();
    for node in &nodes {
        node.insert("catalogue", "foreign", foreign);
    }
    assert!(catalogue.try_read().await.is_err() && catalogue.try_write().await.is_err());
    let after = catalogue.read().await.expect("it has expired");
    assert!(after.is_valid());
}

/// A lock waits in one line, and a lock of readers in another. Each learns of the end of the other, although the nodes do
/// not notify the process that has made the change.
#[tokio::test(start_paused = true)]
async fn a_plain_lock_and_a_writer_of_one_process_follow_each_other() {
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
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

/// Who was in at once: the most readers, and whether a writer was in beside another holder.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
    overlaps: AtomicUsize,
}

impl Inside {
    async fn work(&self, is_writer: bool) {
        let (own, most_others) = if is_writer {
            (&self.writers, 0)
        } else {
            (&self.readers, usize::MAX)
        };
        let count = own.fetch_add(1, SeqCst);
        let others = if is_writer {
            count + self.readers.load(SeqCst)
        } else {
            0
        };
        let writers = self.writers.load(SeqCst) - usize::from(is_writer);
        if others > most_others || writers > 0 {
            self.overlaps.fetch_add(1, SeqCst);
        }
        if !is_writer {
            self.most_readers.fetch_max(count + 1, SeqCst);
        }
        tokio::time::sleep(MS(3)).await;
        own.fetch_sub(1, SeqCst);
    }
}

/// Runs tasks of several processes, a quarter of which write. Returns how many entries there were, the most readers at once,
/// and the overlaps of a writer. `share` makes the lock that a reader takes.
async fn crowd(
    clients: &[Redlock],
    read: fn(&RedlockRwLock, &Redlock, usize) -> redlock_tokio::Lock,
) -> (usize, usize, usize) {
    let inside = Arc::new(Inside::default());
    let entries = Arc::new(AtomicUsize::new(0));
    let mut all = JoinSet::new();
    for task in 0..24 {
        let client = clients[task % clients.len()].clone();
        let (inside, entries) = (inside.clone(), entries.clone());
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
                entries.fetch_add(1, SeqCst);
                drop(guard);
                tokio::time::sleep(MS(1)).await;
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("no panic");
    }
    let [entries, most, overlaps] =
        [&entries, &inside.most_readers, &inside.overlaps].map(|it| it.load(SeqCst));
    (entries, most, overlaps)
}

#[tokio::test(start_paused = true)]
async fn no_writer_is_in_beside_anybody_and_both_kinds_get_in() {
    for joins in [true, false] {
        let nodes = three_nodes();
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(if joins {
                client(&nodes).await
            } else {
                client_of_lone_readers(&nodes).await
            });
        }
        let (entries, most, overlaps) = crowd(&clients, |lock, _, _| lock.read()).await;
        assert_eq!((entries, overlaps), (120, 0));
        assert!(most > 3, "{most} readers at once");
        for client in &clients {
            client.shutdown().await;
        }
        assert!(all_empty(&nodes), "nothing is left behind");
    }
}

/// The control of the test before: readers that take another lock each are in beside a writer.
#[tokio::test(start_paused = true)]
async fn the_check_finds_readers_that_take_no_share() {
    let nodes = three_nodes();
    let clients = [client(&nodes).await, client(&nodes).await];
    let alone = |_: &RedlockRwLock, client: &Redlock, task: usize| client.lock(format!("k{task}"));
    let (_, _, overlaps) = crowd(&clients, alone).await;
    assert!(overlaps > 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_soon_after_another_asks_no_node() {
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.read().await.unwrap();
    assert!(matches!(first.acquisition(), Acquisition::Granted { .. }));
    nodes.iter().for_each(|node| node.set_down(true));
    let mut joined = Vec::new();
    for _ in 0..3 {
        joined.push(catalogue.try_read().await.expect("no node is asked"));
    }
    nodes.iter().for_each(|node| node.set_down(false));
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
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let mut all = JoinSet::new();
    for _ in 0..1000 {
        all.spawn(catalogue.read().into_future());
    }
    let guards: Vec<_> = all
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let mut tokens: Vec<_> = guards.iter().map(|it| it.token().to_string()).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 1);
    let granted =
        |it: &&redlock_tokio::LockGuard| matches!(it.acquisition(), Acquisition::Granted { .. });
    assert_eq!(guards.iter().filter(granted).count(), 1);
    drop(guards);
    redlock.shutdown().await;
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
    let no_handover = LockOptions::new().no_handover();
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
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.read().await.unwrap();
    let writer = tokio::spawn(catalogue.write().into_future());
    settle().await;
    let later = tokio::spawn(catalogue.read().into_future());
    let last = tokio::spawn(catalogue.read().into_future());
    settle().await;
    assert_eq!(redlock.queue().waiting, 3);
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
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let first = catalogue.write().await.unwrap();
    let second = tokio::spawn(catalogue.write().into_future());
    settle().await;
    let reader = tokio::spawn(catalogue.read().into_future());
    settle().await;
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.release().await.outcome, ReleaseOutcome::Released);
    let reader = reader.await.unwrap().unwrap();
    assert!(matches!(reader.acquisition(), Acquisition::Granted { .. }));
}

/// Returns how long a writer waits while readers of another process come every millisecond and hold for 20 ms.
async fn wait_beside_busy_readers(is_writer: bool) -> Option<Duration> {
    let nodes = three_nodes();
    let (readers, writer) = (client_of_lone_readers(&nodes).await, client(&nodes).await);
    let mut crowd = JoinSet::new();
    for task in 0..20 {
        let lock = readers.rw_lock("catalogue");
        crowd.spawn(async move {
            tokio::time::sleep(MS(task)).await;
            loop {
                let guard = lock.read().wait(MS(60_000)).await.expect("its turn");
                tokio::time::sleep(MS(20)).await;
                drop(guard);
            }
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
    let waited = wait_beside_busy_readers(true)
        .await
        .expect("readers make way");
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
        crowd.spawn(async move {
            loop {
                let guard = lock.write().wait(MS(60_000)).await.expect("its turn");
                tokio::time::sleep(MS(20)).await;
                drop(guard);
            }
        });
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
    let nodes = three_nodes();
    let (reader, writer) = (client(&nodes).await, client(&nodes).await);
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
    let waiting = tokio::spawn(writer.rw_lock("catalogue").write().into_future());
    tokio::time::sleep(MS(100)).await;
    assert!(others.rw_lock("catalogue").try_read().await.is_err());
    drop(held);
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_dies_keeps_writers_out_for_its_own_ttl() {
    let nodes = three_nodes();
    let (dead, alive) = (client(&nodes).await, client(&nodes).await);
    let short = LockOptions::new().ttl(MS(2000)).no_renewal();
    // It renews nothing, and releases nothing while the test runs.
    let _forgotten = dead
        .rw_lock("catalogue")
        .read()
        .options(short)
        .await
        .unwrap();
    let other = alive.rw_lock("catalogue").read().await.unwrap();
    tokio::time::sleep(MS(1000)).await;
    other.extend().await.unwrap();
    let writer = client(&nodes).await;
    let begin = tokio::time::Instant::now();
    drop(other);
    let guard = writer.rw_lock("catalogue").write().await.unwrap();
    let waited = begin.elapsed();
    assert!(waited > MS(900) && waited < MS(1100), "{waited:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_downgraded_writer_lets_readers_in_and_keeps_writers_out() {
    let nodes = three_nodes();
    let (redlock, other) = (client(&nodes).await, client(&nodes).await);
    let catalogue = redlock.rw_lock("catalogue");
    let guard = catalogue.write().fenced().await.unwrap();
    let waiting = tokio::spawn(catalogue.read().into_future());
    let next = tokio::spawn(
        other
            .rw_lock("catalogue")
            .write()
            .wait(MS(60_000))
            .into_future(),
    );
    settle().await;
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
    redlock.shutdown().await;
    other.shutdown().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn readers_of_other_processes_are_notified_of_a_downgrade() {
    let nodes = three_nodes();
    let [one, other] = [client(&nodes).await, client(&nodes).await];
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
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
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
    nodes.iter().for_each(|node| node.set_down(true));
    let error = guard.downgrade().await.unwrap_err();
    assert!(error.to_string().starts_with("no majority"), "{error}");
    nodes.iter().for_each(|node| node.set_down(false));
    tokio::time::sleep(MS(5000)).await;
    assert!(guard.is_valid());
    let reader = client(&nodes).await.rw_lock("f").try_read().await;
    assert!(reader.is_ok(), "renewal has downgraded it");
}

#[tokio::test(start_paused = true)]
async fn readers_are_lost_as_locks_are() {
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let [one, other] = [
        catalogue.read().await.unwrap(),
        catalogue.read().await.unwrap(),
    ];
    nodes
        .iter()
        .for_each(|node| assert!(node.remove("catalogue")));
    assert_eq!(one.lost().await, LossReason::KeysLost);
    assert_eq!(other.lost().await, LossReason::KeysLost);
    drop((one, other));
    let again = catalogue.read().await.expect("it is free");
    nodes[0].remove("catalogue");
    again.extend().await.unwrap();
    settle().await;
    assert!(nodes[0].contains("catalogue"), "it is repaired");
}

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
async fn a_reader_that_may_not_wait_passes_readers_that_do() {
    let nodes = three_nodes();
    let catalogue = client(&nodes).await.rw_lock("catalogue");
    let mut tasks = JoinSet::new();
    for index in 0..20 {
        let catalogue = catalogue.clone();
        tasks.spawn(async move {
            match index % 2 {
                0 => catalogue.read().await,
                _ => catalogue.try_read().await,
            }
        });
    }
    let outcomes = tasks.join_all().await;
    let failed = outcomes.iter().find_map(|it| it.as_ref().err());
    assert!(failed.is_none(), "{}", failed.unwrap());
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
    let nodes = three_nodes();
    let catalogue = client(&nodes).await.rw_lock("catalogue");
    let first = catalogue.write().await.unwrap();
    let second = tokio::spawn(catalogue.write().into_future());
    settle().await;
    drop(first);
    let second = second.await.unwrap().unwrap();
    second.downgrade().await.unwrap();
    let acquisition = second.acquisition();
    assert!(matches!(acquisition, Acquisition::HandedOver { .. }));
}

/// Returns for how long a writer of another client keeps readers out after its wait has come to this end.
async fn mark_left_behind(end: impl AsyncFnOnce(Redlock)) -> Duration {
    let nodes = three_nodes();
    let (reader, others) = (client(&nodes).await, client(&nodes).await);
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
        writer.shutdown().await;
        assert!(waiting.await.unwrap().is_err());
    });
    assert_eq!(shut_down.await, MS(0));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_a_lost_lock_learns_of_the_loss() {
    for notices_first in [false, true] {
        let nodes = three_nodes();
        let catalogue = client(&nodes).await.rw_lock("catalogue");
        let [one, _other] = [
            catalogue.read().await.unwrap(),
            catalogue.read().await.unwrap(),
        ];
        nodes.iter().for_each(|node| node.set_down(true));
        let left = one.remaining();
        let clone = one.hold().clone();
        if notices_first {
            tokio::time::sleep(left + MS(1)).await;
        } else {
            // No timer runs before the guard is dropped.
            tokio::time::advance(left + MS(1)).await;
        }
        drop(one);
        let told = tokio::time::timeout(MS(60_000), clone.lost()).await;
        assert_eq!(told, Ok(LossReason::Expired));
    }
}
