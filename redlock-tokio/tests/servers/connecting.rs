//! Settings of URLs and pools: credentials, databases, sockets, protocols. Secrets never show.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use redlock_kit::RedisServers;
use redlock_tokio::{
    BuildError, Durability, LockError, Redlock, ReleaseOutcome,
    deadpool_redis::{self, Config, Runtime},
};

use crate::{
    fleet::fleet,
    support::{Cli, MS, built, eventually, states::votes, trusting},
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
        let text = format!("{error} {error:?}");
        assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
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
    let error = trusting([url]).build().await.unwrap_err().to_string();
    assert!(error.contains("misconfigured"), "{error}");
    assert!(error.contains("database"), "{error}");

    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", stranger.local_addr().unwrap());
    let answer = thread::spawn(move || {
        let (mut stream, _) = stranger.accept().unwrap();
        let refusal = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        stream.write_all(refusal).unwrap();
        stream.read_to_end(&mut Vec::new())
    });
    let error = trusting([url]).build().await.unwrap_err().to_string();
    assert!(error.contains("misconfigured"), "{error}");
    answer.join().unwrap().ok();
}

#[tokio::test]
async fn busy_servers_do_not_prevent_the_start() {
    // A busy server refuses `SELECT`, and `INFO` if no database is named.
    for (busy, database) in [(1, "/3"), (3, "/3"), (3, "")] {
        let servers = RedisServers::spawn_with(3, &["--lua-time-limit", "10"]).unwrap();
        let mut scripts = Vec::new();
        for server in servers.iter().take(busy) {
            let node = Cli::of(server);
            scripts.push(thread::spawn(move || {
                node.run(&["EVAL", "while true do end", "0"])
            }));
            let node = Cli::of(server);
            eventually("it is busy", || node.run(&["PING"]).contains("BUSY")).await;
        }
        let urls = servers.urls().into_iter().map(|url| url + database);
        let redlock = trusting(urls).build().await.expect("it starts");
        let outcome = redlock.try_lock("k").await;
        match busy {
            1 => assert!(outcome.unwrap().is_valid()),
            _ => _ = assert_refused!(outcome, LockError::NoQuorum(_)),
        }
        for server in servers.iter().take(busy) {
            assert_eq!(Cli::of(server).run(&["SCRIPT", "KILL"]), "OK");
        }
        for script in scripts {
            script.join().unwrap();
        }
        let other = redlock.lock("other").wait(MS(8000)).await;
        assert!(other.expect("the servers answer").is_valid());
    }
}

#[tokio::test]
async fn connections_that_were_closed_while_idle_are_replaced_before_they_are_needed() {
    let (servers, [redlock]) = fleet(3).await;
    let guard = redlock.lock("k").await.unwrap();
    for server in servers.iter() {
        Cli::of(server).run(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    eventually("connected again", || {
        // One line belongs to this `redis-cli`. A connection in the list may not have finished its
        // handshake.
        let clients = |it| Cli::of(servers.get(it)).run(&["CLIENT", "LIST"]);
        (0..3).all(|it| clients(it).lines().count() > 1 && votes(&redlock, it))
    })
    .await;
    guard.extend().await.expect("the first request after it");
    assert!(redlock.try_lock("another").await.is_ok());
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
    let named = pools.iter().enumerate();
    let builder = named.fold(Redlock::builder(), |builder, (i, pool)| {
        builder.pool(format!("pool {i}"), pool.clone(), None)
    });
    let redlock = built(builder.durability(Durability::AssumedForTests)).await;
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
    let error = redlock.try_lock("other").await.unwrap_err().to_string();
    assert!(error.contains("pool 1"), "{error}");
}
