//! Nodes that started recently and have no vote yet. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redlock_tokio::{
    LockError, MemoryNode, Redlock, ReleaseOutcome, ServerInfo, Verdict,
    errors::NotReady,
    node::{Command, Operation, RunId, Server, Session},
};
use tokio::time::Instant;

use crate::support::{
    MS, assert_says, built,
    in_memory::five_nodes_and_lock,
    scripted::{Scripted, over_custom},
    states::is_quarantined,
};

/// How long a node has no vote that starts at the time of the connection, with default settings.
const QUARANTINE: Duration = Duration::from_millis(10_102);

/// When a majority of the nodes of `fresh` votes. The uptime is in whole seconds, so the three seconds of the third node
/// may be little more than two.
const MAJORITY: Duration = Duration::from_millis(10_102 - 2000);

/// Describes a server with this run id, which has been up for so long when a client connects.
fn described(letter: u8, uptime: Duration) -> impl Fn() -> Server + Send + Sync {
    move || Server::Known(ServerInfo::new(RunId::new([letter; RunId::LEN]), uptime))
}

/// A node that has been up for so long. `asked` counts the locks that it is asked for.
fn young(letter: u8, uptime: Duration, asked: &Arc<AtomicUsize>) -> Scripted {
    let asked = Arc::clone(asked);
    let young = Scripted::new(&MemoryNode::new(), move |node, batch| {
        let asks = |it: &&Command| matches!(it.operation(), Operation::Acquire { .. });
        asked.fetch_add(batch.iter().filter(asks).count(), SeqCst);
        node.execute(batch)
    });
    young.server(described(letter, uptime))
}

/// Nodes that have been up for so many seconds each.
fn nodes<const N: usize>(uptimes: [u64; N]) -> impl Iterator<Item = Scripted> {
    let nodes = uptimes.into_iter().zip(b'a'..);
    nodes.map(|(uptime, letter)| young(letter, Duration::from_secs(uptime), &Arc::default()))
}

/// Connects to five nodes, of which two have just started. Returns how often one of these was asked for a lock, too.
async fn fresh() -> (Redlock, Arc<AtomicUsize>) {
    let asked = Arc::default();
    let first = young(b'z', Duration::ZERO, &asked);
    let builder = over_custom([first]).custom_nodes(nodes([9, 5, 3, 0]));
    (built(builder).await, asked)
}

#[tokio::test(start_paused = true)]
async fn a_lock_waits_for_the_end_of_a_quarantine_that_ends_within_its_wait() {
    let (redlock, asked) = fresh().await;
    let start = Instant::now();
    let guard = redlock.lock("k").wait(MS(15_000)).await.expect("in time");
    let waited = start.elapsed();
    let in_time = MAJORITY..MAJORITY + MS(30);
    assert!(in_time.contains(&waited), "{waited:?}");
    assert!(guard.is_valid());
    let asked = asked.load(SeqCst);
    assert!((8..=18).contains(&asked), "{asked} times in 8 s");
}

#[tokio::test(start_paused = true)]
async fn a_lock_fails_after_its_wait_where_the_quarantine_is_longer() {
    let (redlock, asked) = fresh().await;
    let start = Instant::now();
    assert_refused!(redlock.try_lock("k").await, LockError::Quarantined { .. });
    assert_eq!((start.elapsed(), asked.swap(0, SeqCst)), (MS(0), 1));
    let error = redlock.lock("k").await.unwrap_err();
    assert_eq!(start.elapsed(), MS(5000), "the default wait");
    let asked = asked.load(SeqCst);
    assert!((5..=12).contains(&asked), "{asked} times in 5 s");
    let LockError::Quarantined { remaining, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*remaining, MAJORITY - MS(5000));
    let text = error.to_string();
    assert!(text.contains("a majority votes in about 3 s"), "{text}");
    assert!(text.contains("up as the master for long enough"), "{text}");
    let address = &redlock.nodes()[0].address;
    assert!(text.contains(&**address), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_as_soon_as_a_majority_may_vote() {
    let (redlock, asked) = fresh().await;
    for (passed, text, objecting) in [(0, "in about 8 s", 5), (3000, "in about 5 s", 4)] {
        let error = redlock.ready(MS(passed)).await.unwrap_err();
        assert_says(&error, text);
        let NotReady::NoQuorum {
            remaining, nodes, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*remaining, Some(MAJORITY - MS(passed)));
        assert_eq!(nodes.len(), objecting);
    }
    let start = Instant::now();
    redlock.ready(MS(15_000)).await.expect("in time");
    let waited = start.elapsed() + MS(3000);
    let in_time = MAJORITY..MAJORITY + MS(5);
    assert!(in_time.contains(&waited), "{waited:?}");
    assert_eq!(asked.load(SeqCst), 0, "no node is asked for a lock");
    drop(redlock.try_lock("k").await.expect("it is ready"));
    redlock.shutdown(None).await;
    let error = redlock.ready(Duration::MAX).await.unwrap_err();
    assert_eq!(error, NotReady::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_vote_objects_to_no_release() {
    let redlock = built(over_custom(nodes([3600, 3600, 0]))).await;
    let guard = redlock.lock("k").await.expect("two of three vote");
    assert!(is_quarantined(&redlock, 2), "{:?}", redlock.nodes());
    let report = guard.release().await;
    assert_eq!(report.outcome, ReleaseOutcome::Released);
    assert!(report.nodes.is_empty(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_that_a_lock_is_free_by_nodes_that_may_have_forgotten_it() {
    let (nodes, holder) = five_nodes_and_lock().await;
    let lock = holder.lock("k").await.unwrap();
    let permit = holder.semaphore("s", 1).acquire().await.unwrap();
    // Their servers have just started, and have forgotten what they had.
    nodes[..3].iter().for_each(MemoryNode::clear);
    let restarted = nodes[..3].iter().zip(b'a'..);
    let restarted = restarted
        .map(|(node, letter)| Scripted::obeying(node).server(described(letter, Duration::ZERO)));
    let builder = over_custom(restarted).custom_nodes(nodes[3..].to_vec());
    let onlooker = built(builder).await;
    assert!(lock.is_valid() && permit.is_valid());
    for key in ["k", "s"] {
        let inspection = onlooker.inspect(key).await.unwrap();
        assert_eq!(inspection.verdict(), Verdict::Unknown, "{inspection}");
        let why = "nothing; has no vote: not known to have been up";
        assert_says(&inspection, why);
    }
    let inspection = onlooker.inspect("s").await.unwrap();
    let permits: Vec<_> = inspection.permits().into_values().collect();
    assert_eq!(permits, [Verdict::Unknown], "{inspection}");
    let candidate = onlooker.elect("k").candidate();
    assert_eq!(candidate.leader().await, Ok(Verdict::Unknown));
    tokio::time::sleep(QUARANTINE).await;
    for key in ["k", "s"] {
        let inspection = onlooker.inspect(key).await.unwrap();
        assert_eq!(inspection.verdict(), Verdict::Free, "{inspection}");
    }
}
