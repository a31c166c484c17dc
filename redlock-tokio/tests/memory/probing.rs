//! How often a waiter probes a taken key. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::join;
use redlock_tokio::{
    MemoryNode,
    node::{Command, Operation, Session},
};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, built,
    in_memory::{client, three_nodes},
    scripted::{Reports, Scripted, over_custom},
};

/// For how long another client holds the key.
const HOLD: Duration = Duration::from_secs(30);

/// A node that counts probes.
fn counting(node: &MemoryNode, reports: Reports, probes: &Arc<AtomicUsize>) -> Scripted {
    let probes = Arc::clone(probes);
    let counting = Scripted::new(node, move |node, batch| {
        let is_probe = |it: &&Command| matches!(it.operation(), Operation::Probe { .. });
        probes.fetch_add(batch.iter().filter(is_probe).count(), SeqCst);
        node.execute(batch)
    });
    counting.reports(reports)
}

/// What a waiter does while another client holds the key, and after its release.
struct Waited {
    /// How often it probed each node during the hold.
    probes: usize,
    /// How long after the release it had the lock.
    delay: Duration,
}

async fn wait_over(nodes: &[MemoryNode], reports: [Reports; 3]) -> Waited {
    let probes = Arc::new(AtomicUsize::new(0));
    let counted = nodes.iter().zip(reports);
    let counted = counted.map(|(node, reports)| counting(node, reports, &probes));
    let (holder, waiter) = (client(nodes).await, built(over_custom(counted)).await);
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
async fn a_waiter_that_is_promised_reports_probes_seldom_and_finds_out_that_one_is_lost() {
    for (reports, expected, longest) in [
        (Reports::Arrive, 3..=8, MS(9)),
        (Reports::GetLost, 0..=8, MS(10_010)),
        (Reports::None, 201..=usize::MAX, MS(210)),
    ] {
        let Waited { probes, delay } = wait_over(&three_nodes(), [reports; 3]).await;
        assert!(expected.contains(&probes), "{reports:?}: {probes}");
        assert!(delay <= longest, "{reports:?}: {delay:?}");
    }
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
