//! A server does not notify the connection that has made a change. So those of one process that hold a key, or wait for it,
//! are told by each other. Over nodes in memory, by tokio's clock.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_tokio::{
    Lock, LockGuard, LockOptions, LossReason, MemoryNode, NodeError, Redlock,
    node::{Node, Session},
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    MS, built,
    in_memory::{Two, all_empty, hold},
    scripted::over_custom,
};

/// How long a round trip or two take over nodes in memory.
const AT_ONCE: Duration = Duration::from_millis(50);

impl Two {
    async fn adopted(&self) -> LockGuard {
        let given = self.other.lock("k").await.unwrap();
        self.own.adopt(given.into_ticket().unwrap()).await.unwrap()
    }
}

/// Some lock of the key `k`, or of the semaphore `s` of one permit.
type Kind = fn(&Redlock) -> Lock;

const PLAIN: Kind = |it| it.lock("k");
const SEVERAL: Kind = |it| it.lock_all(["a", "k"]);
const READER: Kind = |it| it.rw_lock("k").read();
const WRITER: Kind = |it| it.rw_lock("k").write();
const PERMIT: Kind = |it| it.semaphore("s", 1).acquire();
const SLOT: Kind = |it| it.lock("s:slot:0");

/// Deletes what any client has of the key of a lock.
async fn free(redlock: &Redlock, key: &[u8]) {
    let inspection = redlock.inspect(key).await.unwrap();
    redlock.force_unlock(&inspection).await;
}

/// Lets a lock wait that looks again by itself only after minutes, and does this. Returns how long it waited after that.
async fn wait_for<T>(waiter: Lock, frees: impl AsyncFnOnce() -> T) -> (T, Duration) {
    let seldom = LockOptions::new().retry_delay(MS(600_000), MS(1_200_000));
    let waiter = waiter.options(seldom.wait(MS(3_600_000)));
    let waiting = tokio::spawn(waiter.into_future());
    sleep(MS(1500)).await;
    assert!(!waiting.is_finished(), "the lock is taken");
    let begun = Instant::now();
    let freed = frees().await;
    drop(waiting.await.unwrap().unwrap());
    (freed, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_holder_learns_that_its_own_process_has_freed_its_lock() {
    for kind in [PLAIN, SEVERAL, WRITER, PERMIT, SLOT] {
        let two = Two::new().await;
        let guard = kind(&two.own).await.unwrap();
        let key = guard.keys().last().unwrap().as_bytes().to_vec();
        free(&two.own, &key).await;
        let lost = timeout(AT_ONCE, guard.lost()).await;
        assert_eq!(lost, Ok(LossReason::KeysLost), "{guard:?}");
    }
    let two = Two::new().await;
    let adopted = two.adopted().await;
    free(&two.own, b"k").await;
    let lost = timeout(AT_ONCE, adopted.lost()).await;
    assert_eq!(lost, Ok(LossReason::KeysLost), "adopted");
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_frees_what_was_inspected_and_not_the_lock_of_a_later_holder() {
    let two = Two::new().await;
    let hung = two.other.lock("k").await.unwrap();
    let inspection = two.own.inspect("k").await.unwrap();
    hung.release().await;
    let later = two.other.lock("k").await.unwrap();
    two.own.force_unlock(&inspection).await;
    assert!(later.extend().await.is_ok(), "it is another lock");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_ends_wakes_those_of_its_process_that_ask_for_its_key() {
    for (held, waits) in [
        (PLAIN, READER),
        (PLAIN, WRITER),
        (SEVERAL, WRITER),
        (READER, PLAIN),
        (READER, WRITER),
        (WRITER, PLAIN),
        (READER, SEVERAL),
        (PERMIT, SLOT),
        (SLOT, PERMIT),
    ] {
        let two = Two::new().await;
        let guard = held(&two.own).await.unwrap();
        let name = format!("{guard:?}");
        let ((), waited) = wait_for(waits(&two.own), async || drop(guard)).await;
        assert!(waited < AT_ONCE, "{waited:?} for {name}");
        two.own.shutdown(None).await;
        assert!(all_empty(&two.nodes));
    }
    for waits in [PLAIN, SEVERAL, READER, WRITER] {
        let two = Two::new().await;
        let adopted = two.adopted().await;
        let ((), waited) = wait_for(waits(&two.own), async || drop(adopted)).await;
        assert!(waited < AT_ONCE, "{waited:?} for an adopted lock");
    }
}

/// A node whose second connection leads to another server, as after a failover.
struct Moves([MemoryNode; 2], AtomicUsize);

impl Node for Moves {
    fn address(&self) -> &str {
        self.0[0].address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        self.0[self.1.fetch_add(1, SeqCst).min(1)].connect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_of_a_free_key_from_the_server_that_took_over() {
    let servers = [(); 2].map(|()| MemoryNode::new());
    hold(&servers, "k", MS(60_000));
    let redlock = built(over_custom([Moves(servers.clone(), AtomicUsize::new(0))])).await;
    let ((), waited) = wait_for(redlock.lock("k"), async || {
        servers[0].set_down(true);
        redlock.try_lock("b").await.unwrap_err();
        sleep(MS(2000)).await;
        assert!(servers[1].remove("k"));
    })
    .await;
    assert!(waited < MS(2000) + AT_ONCE, "{waited:?}");
}
