//! The warnings in the log: keys with an unexpected time to live, nodes that may forget locks. Each test runs
//! on one thread, since its subscriber is that of a thread.

use redlock_kit::RedisServers;
use redlock_tokio::{Durability, MemoryNode, Redlock};

use crate::{
    fleet::fleet,
    support::{Cli, MS, eventually, log::Log, unrenewed},
};

/// A server's clock that jumps ahead shortens the life of a key, as `PEXPIRE` does here.
#[tokio::test]
async fn row_18_a_shortened_key_is_logged_and_repaired() {
    let (log, _guard) = Log::start();
    let (servers, [redlock]) = fleet(3).await;
    let guard = unrenewed(redlock.lock("k")).await;
    guard.extend().await.unwrap();
    assert_eq!(log.text(), "", "no warning yet");

    let server = Cli::of(servers.get(0));
    assert_eq!(server.run(&["PEXPIRE", "k", "3000"]), "1");
    guard.extend().await.unwrap();
    // The extension may not have waited for this node's answer.
    let has = |words: &str| log.text().contains(words);
    eventually("the warning is logged", || {
        has("less time left than the lock relies on")
    })
    .await;
    let address = servers.get(0).address().to_string();
    let text = log.text();
    assert!(
        text.contains(&address) && text.lines().count() == 1,
        "{text}"
    );
    assert!(server.pttl("k") > 8000, "and repaired");

    assert_eq!(server.run(&["PERSIST", "k"]), "1");
    guard.extend().await.unwrap();
    eventually("the warning is logged", || {
        has("more time left than it was given")
    })
    .await;
    assert!(
        has("it has no end") && !has("18446744073"),
        "{}",
        log.text()
    );
    assert!(server.pttl("k") > 0, "and repaired");
}

#[tokio::test]
async fn nodes_that_may_forget_locks_are_logged() {
    let (log, _guard) = Log::start();
    let arguments = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"];
    let servers = RedisServers::spawn_with(1, &arguments).unwrap();
    let builder = Redlock::builder().nodes(servers.urls());
    let redlock = builder
        .durability(Durability::FsyncAlways)
        .build()
        .await
        .unwrap();
    drop(
        redlock
            .lock("k")
            .wait(MS(0))
            .await
            .expect("it votes at once"),
    );
    let text = log.text();
    assert!(text.contains("set maxmemory-policy noeviction"), "{text}");
    assert!(text.contains("appendonly is off"), "{text}");
}

#[tokio::test]
async fn the_recovery_of_a_node_and_the_end_of_its_quarantine_are_logged() {
    let (log, _guard) = Log::start();
    let servers = RedisServers::spawn(3).unwrap();
    let builder = Redlock::builder().nodes(servers.urls()).ttl(MS(1000));
    let _redlock = builder.build().await.unwrap();
    eventually("all vote", || log.count("votes from now on") == 3).await;
    assert_eq!(log.count("connected again"), 0, "{}", log.text());
    servers.get(0).restart().unwrap();
    eventually("it is back", || log.count("connected again") == 1).await;
    eventually("it votes", || log.count("votes from now on") == 4).await;
    let text = log.text();
    let last = text.lines().last().unwrap();
    assert!(last.contains("INFO") && last.contains(&servers.get(0).address().to_string()));
}

#[tokio::test]
async fn an_extension_by_a_longer_ttl_is_nothing_to_warn_of() {
    let (log, _guard) = Log::start();
    let (_servers, [redlock]) = fleet(3).await;
    let guard = redlock.lock("k").ttl(MS(5000)).await.unwrap();
    guard.extend_for(MS(10_000)).await.unwrap();
    guard.extend().await.unwrap();
    drop(guard);
    redlock.shutdown(None).await;
    assert_eq!(log.text(), "");
}

/// A majority of four is three, so four nodes tolerate one failure, as three nodes do.
#[tokio::test]
async fn an_even_number_of_nodes_is_warned_of_when_the_lock_is_built() {
    for (nodes, warning) in [
        (1, None),
        (2, Some("nodes=2 tolerated_failures=0")),
        (3, None),
        (4, Some("nodes=4 tolerated_failures=1")),
    ] {
        let (log, _guard) = Log::start();
        let memory = (0..nodes).map(|_| MemoryNode::new());
        let builder = Redlock::builder().custom_nodes(memory);
        builder
            .durability(Durability::AssumedForTests)
            .build()
            .await
            .unwrap();
        let text = log.text();
        match warning {
            Some(fields) => {
                assert!(text.contains("an even number of nodes"), "{text}");
                assert!(text.contains(fields), "{text}");
                assert_eq!(text.lines().count(), 1, "{text}");
            }
            None => assert_eq!(text, ""),
        }
    }
}
