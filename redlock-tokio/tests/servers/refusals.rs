//! Servers that answer and refuse each lock: clients know it, and say why.

use std::time::Duration;

use redlock_tokio::errors::NotReady;

use crate::{
    fleet::{clis, fleet},
    support::{
        assert_says, eventually,
        states::{is_refused, state},
    },
};

const MINUTE: Duration = Duration::from_secs(60);

/// Sets an option on all servers, under which they refuse with this code, and sets it back.
async fn servers_refuse(code: &str, option: &str, refusing: &str, usual: &str) {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    let set = |value| nodes.iter().for_each(|it| it.configure(option, value));
    set(refusing);
    redlock.ready(MINUTE).await.expect("nobody has asked");
    assert_says(&redlock.try_lock("k").await.unwrap_err(), code);
    let refuses = |it| is_refused(&redlock, it) && state(&redlock, it).to_string().contains(code);
    eventually("all are known to refuse", || (0..3).all(refuses)).await;
    let outcome = redlock.ready(Duration::ZERO).await;
    assert_says(&assert_refused!(outcome, NotReady::NoQuorum { .. }), code);

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
