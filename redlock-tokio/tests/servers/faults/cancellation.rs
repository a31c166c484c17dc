//! The fault matrix, row 36: a waiter that gives up at any point leaves no key behind and touches no key of
//! another client.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream::FuturesOrdered};
use redlock_tokio::{LockOptions, Redlock};

use crate::support::{
    MS,
    bed::Bed,
    built,
    cut::{cut_after, restless},
};

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// No other client wants the key.
    Free,
    /// Another client holds the key on a majority of nodes, so the lock fails after three attempts.
    Taken,
    /// Another client holds the key on one node.
    Divided,
    /// With a fencing token, on nodes whose counters are ahead by different amounts.
    Fenced,
    /// With work under the lock that waits for an extension.
    With,
}

const WAYS: [Way; 5] = [Way::Free, Way::Taken, Way::Divided, Way::Fenced, Way::With];

impl Way {
    /// Returns the key of another client that a node has before the lock is requested, and must have
    /// afterwards.
    fn foreign(self, node: usize, key: &str) -> Option<(String, String)> {
        let is_there = matches!((self, node), (Self::Taken, 0 | 2) | (Self::Divided, 1));
        is_there.then(|| (key.into(), "foreign".into()))
    }

    /// Returns the fencing counter that a node has before the lock is requested.
    fn counter(self, node: usize, key: &str) -> Option<(String, String)> {
        let ahead = [6, 4, 5][node] * 1_000_000_000_000_000_u64;
        (self == Self::Fenced).then(|| (format!("redlock:fence:{{{key}}}"), ahead.to_string()))
    }

    /// Requests the lock, and releases it.
    async fn go(self, redlock: &Redlock, key: &str) {
        let lock = redlock.lock(key);
        let lock = lock.options(LockOptions::new().max_attempts(3));
        match self {
            Self::Free | Self::Divided => drop(lock.await.unwrap()),
            Self::Fenced => drop(lock.fenced(true).await.unwrap()),
            Self::Taken => {
                let error = lock.await.unwrap_err();
                assert!(error.is_contended(), "{error}");
                // A probe that finds the key taken counts as one of the three.
                let attempts = error.attempts().map(|it| it.count);
                assert!(matches!(attempts, Some(1..=3)), "{error}");
            }
            Self::With => {
                let extended = lock.with(async |hold| hold.extend().await).await;
                extended.unwrap().unwrap();
            }
        }
    }

    /// Cuts requests off, each for a key of its own after one more poll than the last, until one completes before.
    /// Returns the keys of those that were cut off, and of some that were not.
    async fn cut_everywhere(self, bed: &Bed, redlock: &Redlock, is_restless: bool) -> Cut {
        /// How many requests run at once.
        const AT_ONCE: usize = 12;
        let mut cut = Cut::default();
        for first in (0..).step_by(AT_ONCE) {
            let polls = first..first + AT_ONCE;
            let named = |polls| format!("{self:?}-{is_restless}-{polls}");
            let batch: Vec<_> = polls.clone().map(named).collect();
            for node in 0..bed.servers.len() {
                let foreign = batch.iter().filter_map(|key| self.foreign(node, key));
                let counters = batch.iter().filter_map(|key| self.counter(node, key));
                bed.cli(node).set_all(foreign.chain(counters));
            }
            // Each with a waker of its own.
            let requests = polls.zip(&batch).map(async |(polls, key)| {
                let lock = self.go(redlock, key);
                match is_restless {
                    true => cut_after(polls, restless(MS(1), lock)).await,
                    false => cut_after(polls, lock).await,
                }
            });
            let outcomes: Vec<_> = requests.collect::<FuturesOrdered<_>>().collect().await;
            cut.keys.extend(batch);
            let were_cut = outcomes.iter().filter(|it| it.is_none()).count();
            cut.count += were_cut;
            if were_cut == 0 {
                break;
            }
        }
        cut
    }
}

/// Requests that were cut off.
#[derive(Default)]
struct Cut {
    count: usize,
    keys: Vec<String>,
}

#[tokio::test]
async fn row_36_acquire_cancelled_at_every_await() {
    let bed = Bed::new(3);
    // A slow machine does not exceed this timeout.
    let redlock = built(bed.builder().node_timeout(Duration::from_secs(2))).await;
    // The delays of all links differ. So at each cut some requests and some replies have arrived, and others
    // have not.
    for (proxy, (there, back)) in bed.proxies.iter().zip([(1, 4), (3, 7), (6, 2)]) {
        proxy.requests().delay(MS(there));
        proxy.replies().delay(MS(back));
    }
    let (mut left, mut cuts) = ([const { BTreeMap::new() }; 3], 0);
    for way in WAYS {
        // The verdict wakes the waiter, and not each reply. The extension wakes the work once more, and so do
        // the begin of the release and its end, which a process that was stalled in between sees at once.
        let awaits = if way == Way::With { 4..=5 } else { 2..=2 };
        let woken = way.cut_everywhere(&bed, &redlock, false).await;
        assert!(awaits.contains(&woken.count), "{way:?}: {}", woken.count);
        let restless = way.cut_everywhere(&bed, &redlock, true).await;
        cuts += restless.count;
        for (node, left) in left.iter_mut().enumerate() {
            let keys = woken.keys.iter().chain(&restless.keys);
            left.extend(keys.filter_map(|key| way.foreign(node, key)));
        }
    }
    assert!(cuts > 25, "only {cuts} in between");
    bed.only_these_are_left(|node| left[node].clone()).await;
}
