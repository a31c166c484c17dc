//! The fault matrix, rows 15, 16, 27, 30 and 33: servers that restart under a hold, that are busy, that
//! refuse, and that speak another protocol.

use std::time::Duration;

use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{Durability, ExtendError, LockError, Redlock, ReleaseOutcome};

use crate::{
    fleet::{clients_over, clis},
    support::{
        Cli, MS,
        acl::limited,
        assert_says, built, eventually, spawn_unprotected,
        states::{all_vote, is_quarantined, is_refused, state, voting},
        trusting, unrenewed,
    },
};

/// A lock and a reader stay in while all nodes restart one after the other. Each node restarts only after the node
/// before it has its vote and the keys again.
#[tokio::test]
async fn row_15_rolling_restarts_under_a_long_hold() {
    // A busy machine may keep a process from renewing its lock for seconds.
    let ttl = MS(5000);
    let servers = RedisServers::spawn(3).unwrap();
    let builder = || Redlock::builder().nodes(servers.urls()).ttl(ttl);
    let client = async || built(builder().node_timeout(MS(1000)).max_hold(Duration::MAX)).await;
    let (redlock, other) = (client().await, client().await);
    let guard = redlock.lock("k").wait(MS(60_000)).await.unwrap();
    let reader = redlock.rw_lock("catalogue").read().await.unwrap();
    for (index, server) in servers.iter().enumerate() {
        all_vote(&redlock).await;
        server.restart().unwrap();
        let node = Cli::of(server);
        let has_no_vote = || is_quarantined(&redlock, index);
        eventually("it has no vote at first", has_no_vote).await;
        let token = Some(guard.value());
        eventually("it has our key again", || node.get("k") == token).await;
        let is_shared = || node.get("catalogue").is_some();
        eventually("it has the reader again", is_shared).await;
        assert!(guard.is_valid() && reader.is_valid());
        voting(&redlock, index).await;
        all_vote(&other).await;
        let writer = other.rw_lock("catalogue").try_write().await;
        assert!(writer.unwrap_err().is_contended());
    }
    guard.extend().await.expect("all restarted nodes extend it");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn row_16_restart_with_aof_always() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = RedisServers::spawn_with(3, &arguments).unwrap();
    let builder = || Redlock::builder().nodes(servers.urls());
    let redlock = built(builder().durability(Durability::FsyncAlways)).await;
    let guard = unrenewed(redlock.lock("k")).await;
    let nodes = clis(&servers);
    let token = Some(guard.value());
    let have_it = || nodes.iter().all(|it| it.get("k") == token);
    eventually("the key was set", have_it).await;
    servers.restart().unwrap();
    assert!(have_it(), "it remains");
    // Another client does not get the lock. Its first attempts may fail for lack of a connection.
    let other = built(builder().durability(Durability::FsyncAlways)).await;
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
    let redlock = built(servers.builder().node_timeout(MS(500))).await;
    enter(servers.get(0));
    drop(redlock.lock("k").await.expect("two of three"));
    enter(servers.get(1));
    let error = redlock.lock("k").wait(MS(300)).await.unwrap_err();
    assert!(matches!(error, LockError::NoQuorum(_)), "{code}: {error}");
    assert_says(&error, code);
    // A service can start meanwhile.
    built(servers.builder()).await;
    leave(servers.get(0));
    leave(servers.get(1));
    let guard = redlock.lock("k").wait(MS(8000)).await;
    let guard = guard.expect("they have recovered");
    let nodes = clis(&servers);
    let having = || nodes.iter().filter(|it| it.get("k").is_some()).count();
    eventually("all have it", || having() == 3).await;
    drop(guard);
    eventually("and none has it", || having() == 0).await;
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
        node.configure("dbfilename", "taken.rdb");
        node.configure("save", "3600 1000");
        node.run(&["BGSAVE"]);
        let failed = "rdb_last_bgsave_status:err";
        while !node.run(&["INFO", "persistence"]).contains(failed) {
            std::thread::yield_now();
        }
    };
    let leave = |server: &RedisServer| Cli::of(server).configure("save", "");
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
    let redlock = built(trusting(servers.urls())).await;
    assert!(is_refused(&redlock, 0), "{:?}", redlock.nodes());
    assert_says(&state(&redlock, 0), "a replica of 127.0.0.1:1");
    drop(redlock.lock("k").await.expect("two of three"));
    assert_eq!(node.run(&["REPLICAOF", "NO", "ONE"]), "OK");
    voting(&redlock, 0).await;
}

#[tokio::test]
async fn row_27_loading() {
    // A server that loads its keys answers after every two megabytes: here, 20 times in three seconds.
    let slow_to_load = [["--key-load-delay", "3000"], ["--rdbcompression", "no"]];
    let servers = spawn_unprotected(3, slow_to_load.as_flattened());
    let redlock = built(servers.builder().node_timeout(MS(300))).await;
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
    // A service can start meanwhile.
    built(servers.builder()).await;
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
    let redlock = built(trusting([limited(servers.get(0), "~* &* +@all")])).await;
    drop(redlock.lock("k").await.unwrap());
    admin.set_locker(&["-set"]);
    let error = redlock.lock("k").wait(MS(0)).await.unwrap_err();
    assert_says(&error, "NOPERM");
    assert_says(&error, "'set'");
    admin.set_locker(&["+set"]);
    drop(redlock.lock("k").await.expect("the right is back"));

    admin.set_locker(&["resetpass"]);
    let killed = admin.run(&["CLIENT", "KILL", "USER", "locker"]);
    assert_eq!(killed, "1", "it was connected");
    let is_refused = || is_refused(&redlock, 0);
    eventually("the password is refused", is_refused).await;
    let error = redlock.lock("k").wait(MS(0)).await.unwrap_err();
    assert_says(&error, "misconfigured");
    assert!(!error.to_string().contains("pw"), "{error}");
    admin.set_locker(&[">pw"]);
    let guard = redlock.lock("k").wait(MS(8000)).await;
    drop(guard.expect("the password is valid again"));
}

#[tokio::test]
async fn row_33_resp2_and_resp3() {
    let servers = RedisServers::spawn(3).unwrap();
    for protocol in ["resp2", "resp3"] {
        let [redlock] = clients_over(&servers, &format!("?protocol={protocol}")).await;
        let guard = redlock.lock("k").fenced(true).await.unwrap();
        assert!(guard.fencing_token().is_some());
        guard.extend().await.unwrap();
        assert!(redlock.try_lock("k").await.unwrap_err().is_contended());
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
        let speaks_resp3 = Cli::of(servers.get(0)).has_clients_of_resp3();
        assert_eq!(speaks_resp3, protocol == "resp3");
    }
}
