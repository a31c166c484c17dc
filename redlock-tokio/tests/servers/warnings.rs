//! The warnings in the log: keys with an unexpected time to live, nodes that may forget locks. Each test runs
//! on one thread, since its subscriber is that of a thread.

use redlock_kit::RedisServers;
use redlock_tokio::{Durability, MemoryNode, Redlock};

use crate::{
    fleet::fleet,
    support::{Cli, MS, assert_says, built, eventually, log::Log, unrenewed},
};

/// A server's clock that jumps ahead shortens the life of a key, as `PEXPIRE` does here.
#[tokio::test]
async fn row_18_a_shortened_key_is_logged_and_repaired() {
    let (log, _guard) = Log::start();
    let (servers, [redlock]) = fleet(3).await;
    let guard = unrenewed(redlock.lock("k").ttl(MS(9000))).await;
    guard.extend_for(MS(10_000)).await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!(log.text(), "", "a longer extension is nothing to warn of");

    let server = Cli::of(servers.get(0));
    assert_eq!(server.run(&["PEXPIRE", "k", "3000"]), "1");
    guard.extend().await.unwrap();
    // The extension may not have waited for this node's answer.
    let has = |words: &str| log.count(words) > 0;
    let less = "less time left than the lock relies on";
    eventually("the warning is logged", || has(less)).await;
    assert_says(&log.text(), &servers.get(0).address().to_string());
    assert_eq!(log.text().lines().count(), 1, "{}", log.text());
    assert!(server.pttl("k") > 8000, "and repaired");

    assert_eq!(server.run(&["PERSIST", "k"]), "1");
    guard.extend().await.unwrap();
    let more = "more time left than it was given";
    eventually("the warning is logged", || has(more)).await;
    assert_says(&log.text(), "it has no end");
    assert!(!has("18446744073"), "{}", log.text());
    assert!(server.pttl("k") > 0, "and repaired");
}

#[tokio::test]
async fn nodes_that_may_forget_locks_are_logged() {
    let (log, _guard) = Log::start();
    let arguments = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"];
    let servers = RedisServers::spawn_with(1, &arguments).unwrap();
    let builder = Redlock::builder().nodes(servers.urls());
    let redlock = built(builder.durability(Durability::FsyncAlways)).await;
    let guard = redlock.lock("k").wait(MS(0)).await;
    drop(guard.expect("it votes at once"));
    assert_says(&log.text(), "set maxmemory-policy noeviction");
    assert_says(&log.text(), "appendonly is off");
}

/// A majority of four is three, so four nodes tolerate one failure, as three nodes do.
#[tokio::test]
async fn an_even_number_of_nodes_is_warned_of_when_the_lock_is_built() {
    for nodes in 1..=4 {
        let (log, _guard) = Log::start();
        let memory = (0..nodes).map(|_| MemoryNode::new());
        built(Redlock::builder().custom_nodes(memory)).await;
        let fields = format!("nodes={nodes} tolerated_failures={}", (nodes - 1) / 2);
        let warnings = usize::from(nodes % 2 == 0);
        assert_eq!(log.text().lines().count(), warnings, "{}", log.text());
        assert_eq!(log.count("an even number of nodes"), warnings);
        assert_eq!(log.count(&fields), warnings, "{}", log.text());
    }
}
