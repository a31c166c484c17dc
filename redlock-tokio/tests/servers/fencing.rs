//! Fencing tokens, against real servers and over nodes in memory.

use std::{collections::BTreeMap, time::Duration};

use redlock_kit::RedisServers;
use redlock_tokio::{FencingToken, MemoryNode, Redlock};

use crate::{
    fleet::fleet,
    support::{Cli, MS, eventually, in_memory::over, waiting_at},
};

fn number(token: Option<FencingToken>) -> u64 {
    token.expect("a fenced lock").get()
}

/// Locks and releases a fenced lock ten times, through two services in turn. Returns the fencing tokens.
async fn tokens(services: [&Redlock; 2]) -> Vec<u64> {
    let mut tokens = Vec::new();
    for turn in 0..10 {
        let guard = services[turn % 2].lock("k").fenced(true).await.unwrap();
        tokens.push(number(guard.fencing_token()));
        guard.release().await;
    }
    tokens
}

fn is_growing(tokens: &[u64]) -> bool {
    tokens.windows(2).all(|pair| pair[0] < pair[1])
}

#[tokio::test]
async fn tokens_grow_on_real_servers() {
    let servers = RedisServers::spawn(5).unwrap();
    let services = [
        servers.builder().build().await.unwrap(),
        servers.builder().build().await.unwrap(),
    ];
    let tokens = tokens([&services[0], &services[1]]).await;
    assert!(is_growing(&tokens), "{tokens:?}");
    let plain = services[0].lock("k").await.unwrap();
    assert_eq!(plain.fencing_token(), None);
}

#[tokio::test]
async fn tokens_grow_beyond_counters_that_are_ahead_of_the_wall_clock() {
    let (servers, [redlock]) = fleet(5).await;
    let ahead = 8_000_000_000_000_000_u64; // the year 2223, in microseconds
    for (index, server) in servers.iter().enumerate() {
        let counter = ahead + 10 * index as u64;
        Cli::of(server).set("redlock:fence:{k}", &counter.to_string());
    }
    let tokens = tokens([&redlock, &redlock]).await;
    assert!(is_growing(&tokens), "{tokens:?}");
    // The token is larger than the counters of a majority.
    assert!(tokens[0] > ahead + 20, "{tokens:?}");
    // Flushed scripts are sent again.
    for server in servers.iter() {
        Cli::of(server).run(&["SCRIPT", "FLUSH"]);
    }
    let guard = redlock.lock("k").fenced(true).await.unwrap();
    assert!(number(guard.fencing_token()) > tokens[9]);
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_no_vote() {
    let (servers, [redlock]) = fleet(3).await;
    Cli::of(servers.get(0)).set("redlock:fence:{k}", "rubbish");
    assert!(
        redlock.try_lock("k").await.is_ok(),
        "a lock without a fence ignores the counter"
    );
    let guard = redlock
        .lock("k")
        .fenced(true)
        .await
        .expect("two of three vote");
    assert!(guard.fencing_token().is_some());
    Cli::of(servers.get(1)).set("redlock:fence:{other}", "rubbish");
    Cli::of(servers.get(2)).set("redlock:fence:{other}", "rubbish");
    let error = redlock
        .lock("other")
        .fenced(true)
        .wait(MS(100))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no quorum"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_in_memory_even_when_a_minority_forgets() {
    let nodes: Vec<_> = (0..5).map(|_| MemoryNode::new()).collect();
    let build = || over(&nodes).build();
    let services = [build().await.unwrap(), build().await.unwrap()];
    let mut all = Vec::new();
    for round in 0..5 {
        all.extend(tokens([&services[0], &services[1]]).await);
        nodes[round].clear();
        nodes[(round + 1) % 5].clear();
    }
    assert!(is_growing(&all), "{all:?}");
}

/// One token fences all keys of a lock: it is larger than the tokens of earlier locks of each key, and smaller than the
/// tokens of the locks that follow.
#[tokio::test]
async fn one_token_is_ordered_for_each_of_several_keys() {
    let (servers, [redlock]) = fleet(3).await;
    let ahead = 8_000_000_000_000_000_u64; // the year 2223, in microseconds
    for server in servers.iter() {
        Cli::of(server).set("redlock:fence:{b}", &ahead.to_string());
    }
    let mut last = BTreeMap::new();
    let keys: [&[&str]; 7] = [
        &["a"],
        &["a", "b"],
        &["a"],
        &["c", "b", "a"],
        &["c"],
        &["b"],
        &["a", "c"],
    ];
    for keys in keys {
        let guard = redlock.lock_all(keys).fenced(true).await.unwrap();
        let token = number(guard.fencing_token());
        for &key in keys {
            let earlier = last.insert(key, token).unwrap_or(0);
            assert!(token > earlier, "{keys:?}: {token} after {earlier}");
        }
        guard.extend().await.unwrap();
        guard.release().await;
    }
    assert!(last["a"] > ahead, "it was locked together with b");
    // A counter that is none is named, and no key is set.
    for server in servers.iter() {
        Cli::of(server).set("redlock:fence:{d}", "rubbish");
    }
    let error = redlock
        .lock_all(["e", "d"])
        .fenced(true)
        .wait(MS(100))
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`redlock:fence:{d}` is not"), "{error}");
    for server in servers.iter() {
        assert_eq!(Cli::of(server).get("e"), None);
    }
}

/// A waiter for several keys sets none of them, and raises no counter, while one is taken.
#[tokio::test]
async fn several_keys_are_set_together() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes: Vec<_> = servers.iter().map(Cli::of).collect();
    let redlock = servers.builder().build().await.unwrap();
    for node in &nodes {
        node.run(&["SET", "b", "foreign", "PX", "60000"]);
    }
    let lock = redlock.lock_all(["c", "b", "a"]).fenced(true);
    let waiting = waiting_at(&nodes, lock.wait(Duration::from_secs(60))).await;
    for node in &nodes {
        let unset = ["a", "c", "redlock:fence:{a}"].map(|key| node.get(key));
        assert_eq!(unset, [None, None, None]);
    }
    for node in &nodes {
        node.run(&["DEL", "b"]);
    }
    let guard = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    let guard = guard.expect("all keys are free").unwrap().unwrap();
    let token = Some(number(guard.fencing_token()).to_string());
    let is_raised = |node: &&Cli| node.get("redlock:fence:{c}") == token;
    assert!(nodes.iter().filter(is_raised).count() >= 2);
    drop(guard);
    redlock.shutdown(None).await;
    for node in &nodes {
        assert_eq!(["a", "b", "c"].map(|key| node.get(key)), [None, None, None]);
    }
}

/// A node that has lost the keys and their counters gets both again.
#[tokio::test]
async fn the_counters_of_several_keys_come_back_with_the_keys() {
    let (servers, [redlock]) = fleet(3).await;
    let guard = redlock.lock_all(["a", "b"]).fenced(true).await.unwrap();
    let token = Some(number(guard.fencing_token()).to_string());
    let node = Cli::of(servers.get(0));
    node.run(&["FLUSHALL"]);
    guard.extend().await.expect("two of three");
    let counters = ["redlock:fence:{a}", "redlock:fence:{b}"];
    eventually("the counters are back", || {
        counters.iter().all(|it| node.get(it) == token)
    })
    .await;
    assert_eq!(node.get("b"), Some(guard.value()));
}
