//! The fault matrix, rows 7 to 10: requests and replies that are late, lost or overtaken, against real
//! servers. In each case no key of ours stays behind, and no key of another client is touched.
//!
//! The keys live for a minute, and no test takes that long. So a key that is gone was deleted.

use std::time::{Duration, Instant};

use redlock_tokio::{LockError, LockOptions, NodeState, Redlock, ReleaseOutcome};

use crate::support::{MS, bed::Bed, eventually, states::state};

#[tokio::test]
async fn row_07_reply_lost() {
    let bed = Bed::new(3);
    let redlock = bed.redlock().await;
    let deaf = [0, 1];
    for index in deaf {
        bed.proxies[index].replies().lose();
    }
    assert_refused!(redlock.try_lock("k").await, LockError::NoQuorum(_));
    for index in deaf {
        assert!(bed.cli(index).get("k").is_some(), "the key was set");
        assert!(bed.proxies[index].replies().lost() > 0, "without a reply");
        // A connection that lost a reply is of no use any more. The next one works.
        bed.proxies[index].replies().pass();
    }
    bed.no_key_is_left().await;
}

#[tokio::test]
async fn row_08_set_delayed_past_the_timeout() {
    let bed = Bed::new(3);
    let redlock = bed.redlock().await;
    let slow = [0, 1];
    for index in slow {
        bed.proxies[index].requests().delay(MS(900));
    }
    let start = Instant::now();
    let error = redlock.try_lock("k").await.unwrap_err().to_string();
    assert!(error.contains("no answer within 250ms"), "{error}");
    for index in slow {
        let calls = bed.cli(index).calls("set");
        // On a busy machine it may be there before it is looked for.
        assert!(calls == 0 || start.elapsed() > MS(900), "{calls}");
    }
    for index in slow {
        let cli = bed.cli(index);
        eventually("the key is set late", || cli.calls("set") == 1).await;
    }
    bed.no_key_is_left().await;
}

/// When the lock is released while its request is still on its way to the first node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// At once: the release follows the request on the same connection.
    AtOnce,
    /// When the node counts as silent, so the release is owed.
    Silent,
    /// When the lane has given the connection up and has another one.
    GivenUp,
}

impl Moment {
    const ALL: [Self; 3] = [Self::AtOnce, Self::Silent, Self::GivenUp];

    /// Waits for this moment, after a request that the first node does not answer.
    async fn come(self, bed: &Bed, redlock: &Redlock, connections: u64) {
        match self {
            Self::AtOnce => {}
            Self::Silent => {
                // On a busy machine the lane may have another connection by now.
                let was_silent = || {
                    state(redlock, 0) == NodeState::Silent
                        || bed.proxies[0].accepted() > connections
                };
                eventually("it is silent", was_silent).await;
            }
            Self::GivenUp => {
                let reconnected = || bed.proxies[0].accepted() > connections;
                eventually("it connects again", reconnected).await;
            }
        }
    }
}

/// The request is so late that the release overtakes it on another connection.
#[tokio::test]
async fn row_08_set_overtaken_by_its_release() {
    for moment in Moment::ALL {
        let bed = Bed::new(3);
        let redlock = bed.redlock().await;
        let (cli, proxy) = (bed.cli(0), &bed.proxies[0]);
        proxy.requests().strand();
        let guard = redlock.lock("k").await.expect("two of three");
        moment.come(&bed, &redlock, 1).await;
        drop(guard);
        eventually("the release is there", || cli.comparisons() > 0).await;
        assert_eq!(cli.calls("set"), 0, "before the request to set the key");
        proxy.requests().pass();
        eventually("the key is set late", || cli.calls("set") > 0).await;
        bed.no_key_is_left().await;
    }
}

#[tokio::test]
async fn row_09_late_release_across_attempts() {
    let bed = Bed::new(3);
    let (redlock, bystander) = (bed.redlock().await, bed.bystander().await);
    let (cli, proxy) = (bed.cli(0), &bed.proxies[0]);
    let guard = redlock
        .lock("k")
        .ttl(MS(1000))
        .options(LockOptions::new().no_renewal())
        .await
        .unwrap();
    eventually("the key was set", || cli.calls("set") == 1).await;
    proxy.requests().hold();
    drop(guard);
    let is_held = || proxy.requests().waiting() > 0;
    eventually("the release is held", is_held).await;
    eventually("the key has expired", || cli.get("k").is_none()).await;

    let next = bystander.lock("k").await.expect("it is free");
    let token = next.value();
    eventually("the next key is there", || cli.get("k").is_some()).await;
    let releases = cli.comparisons();
    proxy.requests().pass();
    eventually("the release arrives", || cli.comparisons() > releases).await;
    assert_eq!(cli.get("k"), Some(token), "and is not for this key");
    next.extend().await.expect("it is held on all three");
    assert_eq!(next.release().await.outcome, ReleaseOutcome::Released);
    bed.no_key_is_left().await;
}

/// The release of a lock's first attempt arrives after a later attempt of the same lock has won.
#[tokio::test]
async fn row_09_late_release_of_an_earlier_attempt() {
    let bed = Bed::new(3);
    let (cli, proxy) = (bed.cli(0), &bed.proxies[0]);
    let others = [1, 2];
    for index in others {
        bed.cli(index).set("k", "foreign");
    }
    let builder = bed.builder().node_timeout(MS(300));
    let redlock = builder.build().await.unwrap();
    for index in others {
        bed.proxies[index].replies().hold();
    }
    // The node counts as silent by the next attempt, so only the first release is stranded.
    let options = LockOptions::new().retry_delay(MS(600), MS(700));
    let lock = redlock.lock("k").wait(Duration::from_secs(30));
    let waiting = tokio::spawn(lock.options(options).into_future());
    eventually("the first attempt sets the key", || cli.get("k").is_some()).await;
    let first = cli.get("k");
    // The attempt fails when the others answer, and its release is stranded.
    proxy.requests().strand();
    for index in others {
        bed.proxies[index].replies().pass();
    }
    let is_stranded = || proxy.requests().waiting() > 0;
    eventually("its release is stranded", is_stranded).await;
    let probes = cli.calls("pttl");
    let has_probed = || cli.calls("pttl") > probes;
    eventually("it probes on another connection", has_probed).await;

    for index in others {
        bed.cli(index).run(&["DEL", "k"]);
    }
    let guard = waiting.await.unwrap().expect("it is free");
    let token = Some(guard.value());
    eventually("its key is there", || cli.get("k") == token).await;
    let connections = cli.connections();
    proxy.requests().pass();
    let has_arrived = || cli.connections() < connections;
    eventually("the release arrives, and its connection ends", has_arrived).await;
    assert_eq!(cli.get("k"), token, "it is not for this key");
    assert_ne!(token, first, "each attempt has a token of its own");
    guard.extend().await.expect("it is held");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    bed.no_key_is_left().await;
}

#[tokio::test]
async fn row_10_late_set_on_resume() {
    for moment in Moment::ALL {
        let bed = Bed::new(3);
        let (one, other) = (bed.redlock().await, bed.redlock().await);
        bed.servers.get(0).freeze();
        for redlock in [&one, &other] {
            let connections = bed.proxies[0].accepted();
            let guard = redlock.lock("k").await.expect("two of three");
            moment.come(&bed, redlock, connections).await;
            guard.release().await;
        }
        bed.servers.get(0).thaw();
        let cli = bed.cli(0);
        eventually("the key is set late", || cli.calls("set") >= 2).await;
        bed.no_key_is_left().await;
    }
}
