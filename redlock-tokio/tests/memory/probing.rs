//! How often a waiter probes a taken key. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{future::BoxFuture, join};
use redlock_tokio::{
    Clock, MemoryNode, NodeError, Redlock,
    node::{Answer, Command, FreedNotifier, Node, Operation, Session},
};
use tokio::time::{Instant, sleep};

use crate::support::{MS, in_memory::three_nodes};

/// For how long another client holds the key.
const HOLD: Duration = Duration::from_secs(30);

/// What becomes of the reports that a probed key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    Arrive,
    /// The node promises them, and they do not arrive.
    GetLost,
    /// The node promises none.
    None,
}

/// A node that counts probes.
#[derive(Clone)]
struct Counting {
    inner: MemoryNode,
    reports: Reports,
    probes: Arc<AtomicUsize>,
}

impl Node for Counting {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        Box::pin(async {
            self.inner.connect().await?;
            Ok(Box::new(self.clone()) as Box<dyn Session>)
        })
    }
}

impl Session for Counting {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let is_probe = |it: &&Command| matches!(it.operation(), Operation::Probe { .. });
        let probes = batch.iter().filter(is_probe).count();
        self.probes.fetch_add(probes, SeqCst);
        self.inner.execute(batch)
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        match self.reports {
            Reports::Arrive => self.inner.watch(freed),
            Reports::GetLost => true,
            Reports::None => false,
        }
    }
}

/// What a waiter does while another client holds the key, and after its release.
struct Waited {
    /// How often it probed each node during the hold.
    probes: usize,
    /// How long after the release it had the lock.
    delay: Duration,
}

async fn wait(reports: Reports) -> Waited {
    let nodes = three_nodes();
    wait_over(&nodes, [reports; 3]).await
}

async fn wait_over(nodes: &[MemoryNode], reports: [Reports; 3]) -> Waited {
    let clock = Clock::tokio();
    let probes = Arc::new(AtomicUsize::new(0));
    let counting = nodes.iter().zip(reports).map(|(inner, reports)| Counting {
        inner: inner.clone(),
        reports,
        probes: Arc::clone(&probes),
    });
    let holder = Redlock::builder()
        .custom_nodes(nodes.to_vec())
        .clock(clock.clone());
    let waiter = Redlock::builder().custom_nodes(counting).clock(clock);
    let holder = holder.build().await.unwrap();
    let waiter = waiter.build().await.unwrap();
    let guard = holder.lock("k").await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = waiter.lock("k").wait(2 * HOLD).await;
        (guard.unwrap(), Instant::now())
    });
    sleep(HOLD).await;
    let probes = probes.load(SeqCst) / 3;
    let released = Instant::now();
    guard.release().await;
    let (_guard, locked) = waiting.await.unwrap();
    Waited {
        probes,
        delay: locked - released,
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_notified_probes_once_in_five_to_ten_seconds() {
    let Waited { probes, delay } = wait(Reports::Arrive).await;
    assert!((3..=8).contains(&probes), "{probes} in {HOLD:?}");
    assert!(delay < MS(10), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_notification_is_found_out_within_ten_seconds() {
    let Waited { probes, delay } = wait(Reports::GetLost).await;
    assert!(probes <= 8, "{probes} in {HOLD:?}");
    assert!(delay <= MS(10_010), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_notified_probes_several_times_a_second() {
    let Waited { probes, delay } = wait(Reports::None).await;
    assert!(probes > 200, "{probes} in {HOLD:?}");
    assert!(delay <= MS(210), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_away_does_not_count_as_one_that_notifies() {
    let nodes = three_nodes();
    let reports = [Reports::Arrive, Reports::Arrive, Reports::None];
    let away = async {
        sleep(MS(1000)).await;
        nodes[1].set_down(true);
    };
    let (waited, ()) = join!(wait_over(&nodes, reports), away);
    // Of the two nodes that are left, one notifies.
    assert!(waited.probes > 60, "{} in {HOLD:?}", waited.probes);
    assert!(waited.delay <= MS(210), "{:?}", waited.delay);
}

#[tokio::test(start_paused = true)]
async fn a_number_of_attempts_ends_a_wait_at_the_pace_of_the_delay() {
    for reports in [Reports::Arrive, Reports::None] {
        let nodes = three_nodes();
        let holder = Redlock::builder().custom_nodes(nodes.clone());
        let holder = holder.clock(Clock::tokio()).build().await.unwrap();
        let _guard = holder.lock("k").await.unwrap();
        let counting = nodes.into_iter().map(|inner| Counting {
            inner,
            reports,
            probes: Arc::default(),
        });
        let waiter = Redlock::builder().custom_nodes(counting);
        let waiter = waiter.clock(Clock::tokio()).build().await.unwrap();
        let asked = Instant::now();
        let lock = waiter
            .lock("k")
            .max_attempts(11)
            .retry_delay(MS(20), MS(30));
        let error = lock.await.unwrap_err();
        let waited = asked.elapsed();
        assert!(
            (MS(200)..=MS(310)).contains(&waited),
            "{reports:?}: {waited:?}"
        );
        assert!(error.to_string().contains("(11 attempts in"), "{error}");
    }
}
