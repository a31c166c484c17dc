//! The fault matrix, rows 15, 16, 27, 30 and 33: servers that restart under a hold, that are busy, that
//! refuse, and that speak another protocol.

use std::time::Duration;

use redlock_tokio::{
    Durability, ExtendError, LockError, LockOptions, NodeState, Redlock, ReleaseOutcome,
    test_util::{RedisServer, RedisServers},
};

use crate::support::{Cli, MS, eventually, spawn_unprotected, trusting};

fn votes(redlock: &Redlock, node: usize) -> bool {
    redlock.nodes()[node].state == NodeState::Voting
}

/// The lock stays valid while all nodes restart one after the other. Each node restarts only after the node
/// before it has its vote and our key again.
#[tokio::test]
async fn row_15_rolling_restarts_under_a_long_hold() {
    let ttl = MS(1500);
    let servers = RedisServers::spawn(3).unwrap();
    let builder = Redlock::builder().nodes(servers.urls()).ttl(ttl);
    let builder = builder.node_timeout(MS(400));
    let redlock = builder.build().await.unwrap();
    let guard = redlock
        .lock("k")
        .wait(MS(8000))
        .max_hold(Duration::MAX)
        .await
        .unwrap();
    for (index, server) in servers.iter().enumerate() {
        eventually("all nodes vote", || (0..3).all(|it| votes(&redlock, it))).await;
        server.restart().unwrap();
        let node = Cli::of(server);
        let is_quarantined =
            || matches!(redlock.nodes()[index].state, NodeState::Quarantined { .. });
        eventually("it has no vote at first", is_quarantined).await;
        let token = Some(guard.value());
        eventually("it has our key again", || node.get("k") == token).await;
        assert!(guard.is_valid());
        eventually("it votes again", || votes(&redlock, index)).await;
    }
    guard.extend().await.expect("all restarted nodes extend it");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn row_16_restart_with_aof_always() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = RedisServers::spawn_with(3, &arguments).unwrap();
    let builder = Redlock::builder().nodes(servers.urls());
    let redlock = builder
        .durability(Durability::FsyncAlways)
        .build()
        .await
        .unwrap();
    let guard = redlock
        .lock("k")
        .options(LockOptions::new().no_renewal())
        .await
        .expect("fresh nodes vote");
    let nodes = [0, 1, 2].map(|index| Cli::of(servers.get(index)));
    for node in &nodes {
        eventually("the key was set", || node.get("k").is_some()).await;
    }
    servers.restart().unwrap();
    for node in &nodes {
        assert_eq!(node.get("k"), Some(guard.value()), "it remains");
    }
    // Another client does not get the lock. Its first attempts may fail for lack of a connection.
    let builder = Redlock::builder().nodes(servers.urls());
    let other = builder
        .durability(Durability::FsyncAlways)
        .build()
        .await
        .unwrap();
    while !other.try_lock("k").await.unwrap_err().is_contended() {
        tokio::task::yield_now().await;
    }
    while let Err(error) = guard.extend().await {
        // Until the connections are back.
        let is_temporary = matches!(error, ExtendError::NoQuorum { .. });
        assert!(is_temporary, "nothing was forgotten: {error}");
        tokio::task::yield_now().await;
    }
}

/// Checks a state in which a node has no vote: with one node of three in that state the lock is granted, with
/// two it is not, and after the state has ended all nodes vote again.
async fn no_vote_and_recovers(
    arguments: &[&str],
    code: &str,
    enter: impl Fn(&RedisServer),
    leave: impl Fn(&RedisServer),
) {
    let servers = spawn_unprotected(3, arguments);
    let redlock = servers
        .builder()
        .node_timeout(MS(500))
        .build()
        .await
        .unwrap();
    enter(servers.get(0));
    drop(redlock.lock("k").await.expect("two of three"));
    enter(servers.get(1));
    let error = redlock.lock("k").wait(MS(300)).await.unwrap_err();
    assert!(matches!(error, LockError::NoQuorum(_)), "{code}: {error}");
    assert!(error.to_string().contains(code), "{error}");
    let late = servers.builder().build().await;
    late.expect("a service can start meanwhile");
    leave(servers.get(0));
    leave(servers.get(1));
    let guard = redlock
        .lock("k")
        .wait(MS(8000))
        .await
        .expect("they have recovered");
    let nodes = [0, 1, 2].map(|index| Cli::of(servers.get(index)));
    eventually("all have it", || {
        nodes.iter().all(|it| it.get("k").is_some())
    })
    .await;
    drop(guard);
    eventually("and none has it", || {
        nodes.iter().all(|it| it.get("k").is_none())
    })
    .await;
}

#[tokio::test]
async fn row_27_busy_with_a_script() {
    let enter = |server: &RedisServer| {
        let node = Cli::of(server);
        let endless = std::thread::spawn(move || node.run(&["EVAL", "while true do end", "0"]));
        let node = Cli::of(server);
        while !node.run(&["GET", "k"]).starts_with("BUSY") {
            assert!(!endless.is_finished(), "{:?}", endless.join());
        }
    };
    let leave = |server: &RedisServer| {
        assert_eq!(Cli::of(server).run(&["SCRIPT", "KILL"]), "OK");
    };
    no_vote_and_recovers(&["--lua-time-limit", "20"], "BUSY", enter, leave).await;
}

#[tokio::test]
async fn row_27_misconf() {
    // The snapshot cannot be written, because a directory has its name.
    let enter = |server: &RedisServer| {
        let node = Cli::of(server);
        let directory = node.run(&["CONFIG", "GET", "dir"]);
        let directory = directory.lines().last().unwrap().to_owned();
        std::fs::create_dir_all(format!("{directory}/taken.rdb/full")).unwrap();
        assert_eq!(
            node.run(&["CONFIG", "SET", "dbfilename", "taken.rdb"]),
            "OK"
        );
        assert_eq!(node.run(&["CONFIG", "SET", "save", "3600 1000"]), "OK");
        node.run(&["BGSAVE"]);
        while !node
            .run(&["INFO", "persistence"])
            .contains("rdb_last_bgsave_status:err")
        {
            std::thread::yield_now();
        }
    };
    let leave = |server: &RedisServer| {
        assert_eq!(Cli::of(server).run(&["CONFIG", "SET", "save", ""]), "OK");
    };
    no_vote_and_recovers(&[], "MISCONF", enter, leave).await;
}

/// A replica without its master answers `MASTERDOWN`. The client is not connected when the node becomes a
/// replica, so the node is refused before it votes.
#[tokio::test]
async fn row_27_masterdown() {
    let servers = RedisServers::spawn_with(3, &["--replica-serve-stale-data", "no"]).unwrap();
    let node = Cli::of(servers.get(0));
    assert_eq!(node.run(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
    assert!(node.run(&["GET", "k"]).starts_with("MASTERDOWN"));
    let urls = servers.urls();
    let redlock = trusting(&urls).build().await.unwrap();
    let state = || redlock.nodes()[0].state.clone();
    assert!(matches!(state(), NodeState::Refused(_)), "{:?}", state());
    let text = state().to_string();
    assert!(text.contains("a replica of 127.0.0.1:1"), "{text}");
    drop(redlock.lock("k").await.expect("two of three"));
    assert_eq!(node.run(&["REPLICAOF", "NO", "ONE"]), "OK");
    eventually("it votes", || state() == NodeState::Voting).await;
}

#[tokio::test]
async fn row_27_loading() {
    // A server that loads its keys answers after every two megabytes: here, 20 times in three seconds.
    let slow_to_load = [["--key-load-delay", "3000"], ["--rdbcompression", "no"]];
    let servers = spawn_unprotected(3, slow_to_load.as_flattened());
    let redlock = servers
        .builder()
        .node_timeout(MS(300))
        .build()
        .await
        .unwrap();
    let node = Cli::of(servers.get(0));
    node.run(&["DEBUG", "POPULATE", "1000", "filler", "40000"]);
    let loading = std::thread::spawn({
        let node = Cli::of(servers.get(0));
        move || node.run(&["DEBUG", "RELOAD"])
    });
    while !node.run(&["GET", "k"]).starts_with("LOADING") {
        assert!(!loading.is_finished(), "{:?}", loading.join());
    }
    drop(redlock.lock("k").await.expect("two of three"));
    let late = servers.builder().build().await;
    late.expect("a service can start meanwhile");
    assert_eq!(loading.join().unwrap(), "OK");
    let has_it = async || {
        let guard = redlock.lock("other").await.unwrap();
        let token = Some(guard.value());
        let has_it = node.get("other") == token;
        guard.release().await;
        has_it
    };
    while !has_it().await {
        tokio::task::yield_now().await;
    }
}

/// A user loses rights while the client is connected.
#[tokio::test]
async fn row_30_noauth_and_noperm() {
    let servers = RedisServers::spawn(1).unwrap();
    let admin = Cli::of(servers.get(0));
    let user = |rules: &[&str]| {
        let answer = admin.run(&[&["ACL", "SETUSER", "locker"], rules].concat());
        assert_eq!(answer, "OK");
    };
    user(&["on", ">pw", "~*", "+@all"]);
    let url = format!("redis://locker:pw@127.0.0.1:{}", servers.get(0).port());
    let redlock = trusting([&url]).build().await.unwrap();
    drop(redlock.lock("k").await.unwrap());
    user(&["-set"]);
    let error = redlock.lock("k").wait(MS(0)).await.unwrap_err().to_string();
    assert!(
        error.contains("NOPERM") && error.contains("'set'"),
        "{error}"
    );
    user(&["+set"]);
    drop(redlock.lock("k").await.expect("the right is back"));

    user(&["resetpass"]);
    let killed = admin.run(&["CLIENT", "KILL", "USER", "locker"]);
    assert_eq!(killed, "1", "it was connected");
    let is_refused = || matches!(redlock.nodes()[0].state, NodeState::Refused(_));
    eventually("the password is refused", is_refused).await;
    let error = redlock.lock("k").wait(MS(0)).await.unwrap_err().to_string();
    assert!(
        error.contains("misconfigured") && !error.contains("pw"),
        "{error}"
    );
    user(&[">pw"]);
    drop(
        redlock
            .lock("k")
            .wait(MS(8000))
            .await
            .expect("the password is valid again"),
    );
}

#[tokio::test]
async fn row_33_resp2_and_resp3() {
    let servers = RedisServers::spawn(3).unwrap();
    for protocol in ["resp2", "resp3"] {
        let urls = servers
            .urls()
            .into_iter()
            .map(|url| format!("{url}?protocol={protocol}"));
        let redlock = trusting(urls).build().await.unwrap();
        let guard = redlock.lock("k").fenced().await.unwrap();
        assert!(guard.fencing_token().is_some());
        guard.extend().await.unwrap();
        assert!(redlock.try_lock("k").await.unwrap_err().is_contended());
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
        let speaks_resp3 = Cli::of(servers.get(0)).has_clients_of_resp3();
        assert_eq!(speaks_resp3, protocol == "resp3");
    }
}
