//! Settings of URLs and pools: credentials, databases, sockets, protocols. Secrets never show.

use std::thread;

use redlock_kit::RedisServers;
use redlock_tokio::{
    BuildError, Durability, LockError, Redlock, ReleaseOutcome,
    deadpool_redis::{self, Config, Manager, Pool, Runtime},
};

use crate::{
    fleet::{clis, each},
    support::{
        Cli, MS, assert_says, built, eventually,
        fake::{Act, Fake},
        trusting,
    },
};

const PASSWORD: &str = "hunter2";

#[tokio::test]
async fn a_password_in_the_url_is_used_and_never_shown() {
    let servers = RedisServers::spawn_with(1, &["--requirepass", PASSWORD]).unwrap();
    let port = servers.get(0).port();
    let redlock = built(trusting([format!("redis://:{PASSWORD}@127.0.0.1:{port}")])).await;
    let guard = redlock.lock("k").await.unwrap();
    let shown = format!("{redlock:?} {guard:?} {:?}", redlock.lock("k"));
    assert!(!shown.contains(PASSWORD), "{shown}");
}

#[tokio::test]
async fn a_wrong_or_missing_password_names_the_node_and_not_the_password() {
    let servers = RedisServers::spawn_with(1, &["--requirepass", PASSWORD]).unwrap();
    let port = servers.get(0).port();
    for url in [
        format!("redis://127.0.0.1:{port}"),
        format!("redis://:wrong-secret@127.0.0.1:{port}"),
        format!("redis://nobody:wrong-secret@127.0.0.1:{port}"),
    ] {
        let outcome = trusting([url]).build().await;
        let error = assert_refused!(outcome, BuildError::Refused { .. });
        assert_says(&error, &format!("127.0.0.1:{port}"));
        let text = format!("{error} {error:?}");
        assert!(!text.contains("wrong-secret"), "{text}");
    }
}

#[tokio::test]
async fn a_database_number_in_the_url_is_selected() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = servers.get(0);
    let redlock = built(trusting([format!("{}/3", server.url())])).await;
    let _guard = redlock.lock("k").await.unwrap();
    assert!(Cli::of(server).get("k").is_none());
    assert!(Cli::of(server).with(&["-n", "3"]).get("k").is_some());
}

#[tokio::test]
async fn a_missing_database_and_a_server_that_is_not_redis_are_misconfigurations() {
    let servers = RedisServers::spawn(1).unwrap();
    let url = format!("{}/99", servers.get(0).url());
    let error = trusting([url]).build().await.unwrap_err();
    assert_says(&error, "misconfigured");
    assert_says(&error, "database");

    let refusal = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    let stranger = Fake::at_once(&[Act::Say(refusal.to_vec())]);
    let error = trusting([stranger.url()]).build().await.unwrap_err();
    assert_says(&error, "misconfigured");
}

#[tokio::test]
async fn busy_servers_do_not_prevent_the_start() {
    // A busy server refuses `SELECT`.
    for busy in [1, 3] {
        let servers = RedisServers::spawn_with(3, &["--lua-time-limit", "10"]).unwrap();
        let nodes = &clis(&servers)[..busy];
        for (node, server) in nodes.iter().zip(servers.iter()) {
            let other = Cli::of(server);
            thread::spawn(move || other.run(&["EVAL", "while true do end", "0"]));
            eventually("it is busy", || node.run(&["PING"]).contains("BUSY")).await;
        }
        let urls = servers.urls().into_iter().map(|url| url + "/3");
        let redlock = built(trusting(urls)).await;
        let outcome = redlock.try_lock("k").await;
        match busy {
            1 => assert!(outcome.unwrap().is_valid()),
            _ => _ = assert_refused!(outcome, LockError::NoQuorum(_)),
        }
        assert!(each(nodes, &["SCRIPT", "KILL"]).iter().all(|it| it == "OK"));
        let other = redlock.lock("other").wait(MS(8000)).await;
        assert!(other.expect("the servers answer").is_valid());
    }
}

#[tokio::test]
async fn a_lock_works_over_unix_sockets() {
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = built(trusting(servers.iter().map(|it| it.unix_url()))).await;
    let guard = redlock.lock("k").await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn pools_of_the_caller_lend_one_connection_each_and_keep_working() {
    let servers = RedisServers::spawn(3).unwrap();
    let pool = |url| Config::from_url(url).create_pool(Some(Runtime::Tokio1));
    let pools = servers.urls().into_iter().map(|url| pool(url).unwrap());
    let pools: Vec<_> = pools.collect();
    let mut builder = Redlock::builder().durability(Durability::AssumedForTests);
    for (number, pool) in pools.iter().enumerate() {
        builder = builder.pool(format!("pool {number}"), pool.clone(), None);
    }
    let redlock = built(builder).await;
    let guard = redlock.lock("k").await.unwrap();
    guard.extend().await.unwrap();
    for pool in &pools {
        let status = pool.status();
        assert_eq!((status.size, status.available), (1, 0), "one is in use");
        let mut connection = pool.get().await.expect("the pool has more connections");
        let ping = deadpool_redis::redis::cmd("PING");
        let pong: String = ping.query_async(&mut connection).await.unwrap();
        assert_eq!(pong, "PONG");
    }
    servers.get(1).kill();
    servers.get(2).kill();
    assert_says(&redlock.try_lock("other").await.unwrap_err(), "pool 1");
}

/// Even one that limits the wait by itself.
#[tokio::test]
async fn a_pool_that_the_application_uses_up_is_named_as_the_cause() {
    let servers = RedisServers::spawn(1).unwrap();
    for wait in [None, Some(MS(100))] {
        let pool = Pool::builder(Manager::new(servers.get(0).url()).unwrap()).max_size(1);
        let pool = pool.wait_timeout(wait).runtime(Runtime::Tokio1).build();
        let pool = pool.unwrap();
        let taken = pool.get().await.unwrap();
        let builder = Redlock::builder().durability(Durability::AssumedForTests);
        let builder = builder.connect_timeout(MS(300)).pool("p", pool, None);
        let redlock = built(builder).await;
        let error = redlock.lock("k").wait(MS(1000)).await.unwrap_err();
        assert_says(&error, "uses all connections of the pool (1)");
        drop(taken);
        assert!(redlock.lock("k").wait(MS(5000)).await.is_ok());
    }
}
