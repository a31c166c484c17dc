//! The order among processes that wait for a lock, over real servers.

use std::{
    slice,
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_kit::RedisServers;
use redlock_tokio::{Redlock, RedlockBuilder};

use crate::support::{Cli, MS, eventually, trusting, waiting_at};

/// How many processes wait.
const WAITING: usize = 5;

const MINUTE: Duration = Duration::from_secs(60);

/// Lets processes ask one after the other for a lock that another one holds, and returns who got it when.
async fn order_of(build: impl Fn() -> RedlockBuilder, servers: &RedisServers) -> Vec<usize> {
    let holder = build().build().await.unwrap();
    let held = holder.lock("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut processes = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..WAITING {
        let builder = build().wait(MINUTE).client_name(format!("web-{number}"));
        let redlock = builder.build().await.unwrap();
        let (lock, order) = (redlock.lock("k"), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await;
        }));
        let ahead = Some(number as u32);
        eventually("it stands in the line", || {
            redlock.processes_ahead("k") == ahead
        })
        .await;
        processes.push(redlock);
    }
    let inspection = holder.inspect("k").await.unwrap();
    let labels = inspection.waiting().iter().flatten();
    let expected = (0..WAITING).map(|number| format!("web-{number}"));
    assert!(labels.map(|it| &**it).eq(expected), "{inspection}");
    held.release().await;
    for it in waiting {
        it.await.unwrap();
    }
    for redlock in processes {
        redlock.shutdown(None).await;
    }
    eventually("nobody stands in the line", || standing(servers) == 0).await;
    let order = order.lock().unwrap();
    order.clone()
}

/// Returns how many processes stand in the line of `k`, on whichever node has it.
fn standing(servers: &RedisServers) -> usize {
    let lengths = servers.iter().map(|server| {
        let length = Cli::of(server).run(&["ZCARD", "redlock:line:{k}"]);
        length.parse::<usize>().unwrap()
    });
    lengths.max().unwrap()
}

#[tokio::test]
async fn processes_get_a_lock_in_the_order_in_which_they_came() {
    let servers = RedisServers::spawn(3).unwrap();
    let order = order_of(|| servers.builder(), &servers).await;
    assert!(order.is_sorted(), "{order:?}");
}

#[tokio::test]
async fn a_process_alone_takes_no_place() {
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = servers.builder().build().await.unwrap();
    let cli = Cli::of(servers.get(0));
    for _ in 0..1000 {
        drop(redlock.lock("k").await.unwrap());
    }
    let (asks, joins) = (cli.calls("zcard"), cli.calls("zadd"));
    assert!(asks > 0 && joins == 0, "{asks}, {joins}");
}

#[tokio::test]
async fn processes_that_are_not_called_keep_the_order() {
    let servers = RedisServers::spawn(3).unwrap();
    let resp2 = || {
        trusting(
            servers
                .urls()
                .iter()
                .map(|url| format!("{url}?protocol=resp2")),
        )
    };
    let order = order_of(resp2, &servers).await;
    assert!(order.is_sorted(), "{order:?}");
}

#[tokio::test]
async fn processes_that_list_the_nodes_in_another_order_stand_in_one_line() {
    let servers = RedisServers::spawn(5).unwrap();
    let turned = Mutex::new(0);
    let build = || {
        let mut urls = servers.urls();
        let mut turned = turned.lock().unwrap();
        *turned += 1;
        urls.rotate_left(*turned % 5);
        trusting(urls)
    };
    let order = order_of(build, &servers).await;
    assert!(order.is_sorted(), "{order:?}");
}

/// Rights that a user lacks, what it can do nevertheless, and whether its processes keep the order.
#[tokio::test]
async fn without_the_rights_of_a_line_there_is_a_lock_without_an_order() {
    for (lacks, has_order) in [
        (&["resetchannels"][..], true),
        (&["resetkeys", "~k"], false),
    ] {
        let servers = RedisServers::spawn(1).unwrap();
        let cli = Cli::of(servers.get(0));
        let user = [
            "ACL", "SETUSER", "locker", "on", ">secret", "+@all", "~*", "&*",
        ];
        assert_eq!(cli.run(&[&user[..], lacks].concat()), "OK");
        let url = servers.urls()[0].replace("redis://", "redis://locker:secret@");
        let build = || trusting([&url]);
        if has_order {
            let order = order_of(build, &servers).await;
            assert!(order.is_sorted(), "{lacks:?}: {order:?}");
            continue;
        }
        let [one, other] = [build().build(), build().build()];
        let (one, other): (Redlock, Redlock) = (one.await.unwrap(), other.await.unwrap());
        let guard = one.lock("k").await.unwrap();
        let server = slice::from_ref(servers.get(0));
        let waiting = waiting_at(&[Cli::of(&server[0])], other.lock("k").wait(MINUTE)).await;
        guard.release().await;
        let guard = waiting.await.unwrap();
        assert!(guard.is_ok(), "{lacks:?}: {guard:?}");
        assert_eq!(standing(&servers), 0, "{lacks:?}");
    }
}

#[tokio::test]
async fn places_for_which_nobody_asks_are_forgotten() {
    let servers = RedisServers::spawn(1).unwrap();
    let cli = Cli::of(servers.get(0));
    let [holder, waiter] = [servers.builder().build(), servers.builder().build()];
    let (holder, waiter) = (holder.await.unwrap(), waiter.await.unwrap());
    let _held = holder.lock("k").await.unwrap();
    let now = cli.run(&["TIME"]);
    let now = now.lines().next().unwrap();
    for (place, name, seen) in [("1", "dead", "1"), ("2", "alive", now)] {
        cli.run(&["ZADD", "redlock:line:{k}", place, name]);
        cli.run(&["ZADD", "redlock:line:seen:{k}", seen, name]);
    }
    let waiting = tokio::spawn(waiter.lock("k").wait(MINUTE).into_future());
    let is_forgotten = || cli.run(&["ZRANGE", "redlock:line:{k}", "0", "0"]) == "alive";
    eventually("the dead one is forgotten", is_forgotten).await;
    eventually("the waiter stands behind", || standing(&servers) == 2).await;
    waiting.abort();
}

#[tokio::test]
async fn a_line_is_forgotten_when_nobody_waits_in_it_any_more() {
    let servers = RedisServers::spawn(1).unwrap();
    let cli = Cli::of(servers.get(0));
    let [holder, waiter] = [servers.builder().build(), servers.builder().build()];
    let (holder, waiter) = (holder.await.unwrap(), waiter.await.unwrap());
    let _held = holder.lock("k").await.unwrap();
    let waiting = tokio::spawn(waiter.lock("k").wait(MINUTE).into_future());
    eventually("it stands in the line", || standing(&servers) == 1).await;
    let left: u64 = cli.run(&["PTTL", "redlock:line:{k}"]).parse().unwrap();
    assert!(left > 20_000 && left <= 25_000, "{left} ms");
    waiting.abort();
    eventually("it has left", || standing(&servers) == 0).await;
    assert!(
        holder.lock("k").wait(MS(1)).await.is_err(),
        "the key is held"
    );
}
