//! The test servers: they come back on their ports, with or without their keys.

use std::{net::TcpStream, time::Duration};

use redlock_kit::{Proxy, RedisServers};
use redlock_tokio::{Durability, Redlock, ReleaseOutcome};

use crate::support::{Cli, eventually};

#[tokio::test]
async fn a_server_comes_back_on_its_port_without_its_keys() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = servers.get(0);
    let (port, mut pid) = (server.port(), server.pid());
    for round in 0..4 {
        Cli::of(server).set("k", "v");
        match round {
            0 => server.kill(),
            1 => server.freeze(),
            2 => {} // It still runs.
            _ => server.kill(),
        }
        if round == 3 {
            servers.restart().unwrap();
        } else {
            server.restart().unwrap();
        }
        TcpStream::connect(server.address()).expect("it is up");
        assert_eq!(Cli::of(server).get("k"), None, "it keeps no keys");
        assert_eq!(server.port(), port);
        assert_ne!(std::mem::replace(&mut pid, server.pid()), server.pid());
    }
    server.freeze();
    server.thaw();
    assert_eq!(Cli::of(server).run(&["PING"]), "PONG");
}

#[tokio::test]
async fn a_server_with_an_append_only_file_keeps_its_keys() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = RedisServers::spawn_with(2, &arguments).unwrap();
    servers.iter().for_each(|it| Cli::of(it).set("k", "v"));
    servers.restart().unwrap();
    for server in servers.iter() {
        assert_eq!(Cli::of(server).get("k").as_deref(), Some("v"));
    }
}

#[tokio::test]
async fn locks_work_over_proxies_and_after_restarts() {
    let servers = RedisServers::spawn(3).unwrap();
    let proxies: Vec<_> = servers
        .iter()
        .map(|it| Proxy::spawn(it.address()).unwrap())
        .collect();
    let builder = Redlock::builder().nodes(proxies.iter().map(Proxy::url));
    let builder = builder
        .durability(Durability::AssumedForTests)
        .node_timeout(Duration::from_secs(2));
    let redlock = builder.build().await.unwrap();
    redlock.lock("k").await.unwrap().release().await;
    assert!(proxies.iter().all(|it| it.requests().passed() > 0));
    let before: Vec<_> = proxies.iter().map(Proxy::accepted).collect();
    servers.restart().unwrap();
    eventually("all are connected again", || {
        let mut now = proxies.iter().map(Proxy::accepted).zip(&before);
        now.all(|(now, before)| now > *before)
    })
    .await;
    let guard = redlock.lock("k").await.unwrap();
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}
