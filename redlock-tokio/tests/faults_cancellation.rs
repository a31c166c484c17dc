//! Row 36 of the project's fault matrix: whoever stops waiting for a lock, wherever it is by then,
//! leaves no key behind and touches no key of anybody else.

mod support;

use std::time::Duration;

use futures::{StreamExt, stream::FuturesOrdered};
use redlock_tokio::{LockOptions, Redlock};
use support::{
    MS,
    bed::Bed,
    cut::{cut_after, restless},
    eventually,
};

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nobody else wants it.
    Free,
    /// Another holds it on these nodes, a majority, so it is tried three times and then given up.
    Taken,
    /// Another holds it on one node.
    Divided,
    /// With a fencing token, on nodes whose counters are ahead by different amounts.
    Fenced,
    /// With work to do under it, which waits for an extension.
    With,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Free,
        Self::Taken,
        Self::Divided,
        Self::Fenced,
        Self::With,
    ];

    /// Another's key that is on a node before the lock is asked for, and must be there afterwards.
    fn foreign(self, node: usize, key: &str) -> Option<(String, String)> {
        match (self, node) {
            (Self::Taken, 0 | 2) | (Self::Divided, 1) => Some((key.into(), "foreign".into())),
            _ => None,
        }
    }

    /// The fencing counter that is on a node before.
    fn counter(self, node: usize, key: &str) -> Option<(String, String)> {
        let ahead = [6, 4, 5][node] * 1_000_000_000_000_000_u64;
        (self == Self::Fenced).then(|| (format!("redlock:fence:{{{key}}}"), ahead.to_string()))
    }

    /// Asks for the lock, and gives it back.
    async fn go(self, redlock: &Redlock, key: &str) {
        let options = LockOptions::new().max_attempts(3);
        let lock = redlock.lock(key).options(options);
        match self {
            Self::Free | Self::Divided => drop(lock.await.unwrap()),
            Self::Fenced => drop(lock.fenced().await.unwrap()),
            Self::Taken => {
                let error = lock.await.unwrap_err();
                assert!(error.is_contended(), "{error}");
                // A look that finds it taken is one of the three.
                let attempts = error.attempts().map(|it| it.count);
                assert!(matches!(attempts, Some(1..=3)), "{error}");
            }
            Self::With => {
                let extended = lock.with(async |hold| hold.extend().await).await;
                extended.unwrap().unwrap();
            }
        }
    }

    /// Cuts it after each number of polls, until it is done by then. Returns how often it was cut;
    /// all keys that it was asked for are put on the list.
    async fn cut_everywhere(
        self,
        bed: &Bed,
        redlock: &Redlock,
        is_restless: bool,
        keys: &mut Vec<(Self, String)>,
    ) -> usize {
        /// How many are under way at once.
        const AT_ONCE: usize = 12;
        let mut cuts = 0;
        for first in (0..).step_by(AT_ONCE) {
            let polls = first..first + AT_ONCE;
            let named = |polls| format!("{self:?}-{is_restless}-{polls}");
            let batch: Vec<_> = polls.clone().map(named).collect();
            for node in 0..bed.servers.len() {
                let foreign = batch.iter().filter_map(|key| self.foreign(node, key));
                let counters = batch.iter().filter_map(|key| self.counter(node, key));
                bed.cli(node).set_all(foreign.chain(counters));
            }
            // In order, but each is woken by itself.
            let outcomes: FuturesOrdered<_> = polls
                .zip(&batch)
                .map(async |(polls, key)| {
                    let lock = self.go(redlock, key);
                    if is_restless {
                        cut_after(polls, restless(MS(1), lock)).await
                    } else {
                        cut_after(polls, lock).await
                    }
                })
                .collect();
            let outcomes: Vec<_> = outcomes.collect().await;
            keys.extend(batch.into_iter().map(|key| (self, key)));
            let were_cut = outcomes.iter().filter(|it| it.is_none()).count();
            if were_cut == 0 {
                break;
            }
            cuts += were_cut;
        }
        cuts
    }
}

#[tokio::test]
async fn row_36_acquire_cancelled_at_every_await() {
    let bed = Bed::new(3);
    // The timeout is above what a slow machine may take for a moment.
    let builder = bed.builder().node_timeout(Duration::from_secs(2));
    let redlock = builder.build().await.unwrap();
    // Each node takes its own time for either direction, so wherever a lock is cut, some of its
    // requests have arrived and some of their replies.
    for (proxy, (there, back)) in bed.proxies.iter().zip([(1, 4), (3, 7), (6, 2)]) {
        proxy.requests().delay(MS(there));
        proxy.replies().delay(MS(back));
    }
    let mut keys = Vec::new();
    let mut cuts = 0;
    for way in Way::ALL {
        // It is woken when the verdict is in, not with each reply; and once more for the work.
        let awaits = if way == Way::With { 3 } else { 2 };
        let woken = way.cut_everywhere(&bed, &redlock, false, &mut keys).await;
        assert_eq!(woken, awaits, "{way:?}");
        cuts += way.cut_everywhere(&bed, &redlock, true, &mut keys).await;
    }
    assert!(cuts > 25, "only {cuts} in between");
    bed.only_these_are_left(|node| {
        let foreign = keys.iter().filter_map(|(way, key)| way.foreign(node, key));
        foreign.collect()
    })
    .await;
}

/// A server that knows the release but not the fenced acquisition, as one does whose scripts were
/// flushed and that was sent a release in full since.
#[tokio::test]
async fn fenced_acquire_cancelled_when_its_script_is_missing() {
    let bed = Bed::new(3);
    let redlock = bed.redlock().await;
    let guard = redlock.lock("another").await.unwrap();
    for server in 0..3 {
        assert_eq!(bed.cli(server).run(&["SCRIPT", "FLUSH"]), "OK");
    }
    drop(guard);
    bed.no_key_is_left().await;
    cut_after(1, redlock.lock("k").fenced().into_future()).await;
    for server in 0..3 {
        let cli = bed.cli(server);
        let was_carried_out = || cli.get("redlock:fence:{k}").is_some();
        eventually("it was sent again in full", was_carried_out).await;
    }
    bed.no_key_is_left().await;
}
