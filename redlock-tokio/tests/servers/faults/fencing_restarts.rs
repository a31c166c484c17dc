//! Fencing tokens over real servers that restart and forget their counters.

use std::time::Duration;

use redlock_kit::RedisServers;
use redlock_tokio::{Hold, LockOptions, Redlock};

use crate::{
    fleet::clis,
    support::{
        MS, eventually,
        states::{is_quarantined, votes},
        waiting_at,
    },
};

/// A busy machine may keep a process from renewing its lock for seconds.
const TTL: Duration = Duration::from_millis(5000);
/// After so long the waiter asks again.
const RETRY: Duration = Duration::from_secs(5);

const COUNTER: &str = "redlock:fence:{k}";

async fn service(servers: &RedisServers, parameters: &str) -> Redlock {
    let urls = servers.urls();
    let urls = urls.iter().map(|url| format!("{url}{parameters}"));
    let builder = Redlock::builder().nodes(urls).ttl(TTL);
    let builder = builder.node_timeout(MS(1000)).max_hold(Duration::MAX);
    builder.wait(Duration::from_secs(60)).build().await.unwrap()
}

fn token(hold: &Hold) -> u64 {
    hold.fencing_token().expect("a fenced lock").get()
}

/// A waiter starts before the holder. Then all nodes restart one after the other, and the holder keeps its
/// lock. The waiter gets the lock after the holder, so the waiter's token is larger.
#[tokio::test]
async fn row_42_all_counters_lost_one_by_one_under_a_fenced_hold() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let holders = service(&servers, "").await;
    // RESP2 has no notifications, so this waiter hardly overtakes the next holder.
    let waiters = service(&servers, "?protocol=resp2").await;
    let options = LockOptions::new().fenced(true).retry_delay(RETRY, RETRY);
    let mut overtaken = 0;
    let (holder, waiter) = loop {
        let earlier = holders.lock("k").fenced(true).await.unwrap();
        let waiter = waiting_at(&nodes, waiters.lock("k").options(options)).await;
        earlier.release().await;
        match holders.lock("k").fenced(true).wait(RETRY).await {
            Ok(holder) => break (holder, waiter),
            // On a busy machine it may.
            Err(error) => {
                overtaken += 1;
                assert!(error.is_contended() && overtaken < 5, "{error}");
                drop(waiter.await);
            }
        }
    };

    let mut counters: Vec<Option<u64>> = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        server.restart().unwrap();
        let has_no_vote = || is_quarantined(&holders, index);
        eventually("it has no vote at first", has_no_vote).await;
        let key = Some(holder.value());
        eventually("it has the key again", || nodes[index].get("k") == key).await;
        // The waiter may have raised the counter, too.
        let counter = nodes[index].get(COUNTER);
        counters.push(counter.and_then(|it| it.parse().ok()));
        let votes_again = || votes(&holders, index) && votes(&waiters, index);
        eventually("it votes again", votes_again).await;
        assert!(holder.is_valid());
    }
    let before = token(&holder);
    holder.release().await;
    let next = waiter.await.unwrap().unwrap();
    let next = token(&next);
    let are_restored = counters.iter().all(|counter| *counter >= Some(before));
    assert_eq!(
        (next > before, are_restored),
        (true, true),
        "{before}, then {next}; the counters were {counters:?}"
    );
}
