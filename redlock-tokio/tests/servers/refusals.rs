//! Servers that answer and refuse each lock: clients know it, and say why.

use std::time::Duration;

use redlock_kit::RedisServers;
use redlock_tokio::{NodeState, Redlock, errors::NotReady};

use crate::support::{Cli, eventually};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns whether each node is known to refuse with this code.
fn refuses(redlock: &Redlock, code: &str) -> bool {
    let is_refused = |state: &NodeState| match state {
        NodeState::Refused(error) => error.to_string().contains(code),
        _ => false,
    };
    redlock.nodes().iter().all(|it| is_refused(&it.state))
}

/// Sets an option on all servers, under which they refuse with this code, and sets it back.
async fn servers_refuse(code: &str, option: &str, refusing: &str, usual: &str) {
    let servers = RedisServers::spawn(3).unwrap();
    let set = |value| {
        for server in servers.iter() {
            let answer = Cli::of(server).run(&["CONFIG", "SET", option, value]);
            assert_eq!(answer, "OK");
        }
    };
    let redlock = servers.builder().build().await.unwrap();
    set(refusing);
    redlock.ready(MINUTE).await.expect("nobody has asked");
    let error = redlock.try_lock("k").await.unwrap_err();
    assert!(error.to_string().contains(code), "{error}");
    eventually("all are known to refuse", || refuses(&redlock, code)).await;
    let outcome = redlock.ready(Duration::ZERO).await;
    let error = assert_refused!(outcome, NotReady::NoQuorum { .. });
    assert!(error.to_string().contains(code), "{error}");

    set(usual);
    drop(redlock.lock("k").wait(MINUTE).await.unwrap());
    redlock.ready(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn servers_without_memory_are_not_ready_and_say_so() {
    servers_refuse("OOM", "maxmemory", "1", "0").await;
}

#[tokio::test]
async fn servers_without_the_replicas_that_they_need_are_not_ready_and_say_so() {
    servers_refuse("NOREPLICAS", "min-replicas-to-write", "1", "0").await;
}
