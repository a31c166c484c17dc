//! How often a waiter probes a taken key. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redlock_tokio::node::{Command, Operation, Session};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, built,
    in_memory::{client, three_nodes},
    scripted::{Reports, Scripted, over_custom},
};

/// For how long another client holds the key.
const HOLD: Duration = Duration::from_secs(30);

/// Nodes that promise reports and are away, or lose one, do not keep a waiter from the lock.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_promised_reports_probes_seldom_and_finds_out_that_one_is_lost() {
    let most = usize::MAX;
    let (arrive, none) = (Reports::Arrive, Reports::None);
    for (reports, is_away, expected, longest) in [
        ([arrive; 3], false, 3..=8, MS(9)),
        ([Reports::GetLost; 3], false, 0..=8, MS(10_010)),
        ([none; 3], false, 201..=most, MS(210)),
        // Of the two nodes that are left, one notifies.
        ([arrive, arrive, none], true, 61..=most, MS(210)),
    ] {
        let nodes = three_nodes();
        let probes = Arc::new(AtomicUsize::new(0));
        let counted = nodes.iter().zip(reports).map(|(node, reports)| {
            let probes = Arc::clone(&probes);
            let counting = Scripted::new(node, move |node, batch| {
                let is_probe = |it: &&Command| matches!(it.operation(), Operation::Probe { .. });
                probes.fetch_add(batch.iter().filter(is_probe).count(), SeqCst);
                node.execute(batch)
            });
            counting.reports(reports)
        });
        let (holder, waiter) = (client(&nodes).await, built(over_custom(counted)).await);
        let guard = holder.lock("k").await.unwrap();
        let waiting = tokio::spawn(waiter.lock("k").wait(2 * HOLD).into_future());
        sleep(MS(1000)).await;
        nodes[1].set_down(is_away);
        sleep(HOLD - MS(1000)).await;
        // By each node.
        let probes = probes.load(SeqCst) / 3;
        assert!(expected.contains(&probes), "{reports:?}: {probes}");
        let released = Instant::now();
        guard.release().await;
        drop(waiting.await.unwrap().unwrap());
        let delay = released.elapsed();
        assert!(delay <= longest, "{reports:?}: {delay:?}");
    }
}
