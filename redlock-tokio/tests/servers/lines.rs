//! The order among processes that wait for a lock, over real servers.

use std::{
    cell::Cell,
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use redlock_tokio::{
    RedlockBuilder,
    node::{FreedNotifier, LineAction, LineAnswer, Member, Node, Notice, RedisNode},
};

use crate::{
    fleet::{clis, each, fleet},
    support::{
        Cli,
        acl::limited,
        built, eventually,
        places::{asking, join},
        trusting, waiting_at,
    },
};

/// How many processes wait.
const WAITING: usize = 5;

const LINE: &str = "redlock:line:of:{k}";

const MINUTE: Duration = Duration::from_secs(60);

/// Lets processes ask one after the other for a lock that another one holds. They get it in this order. Returns how often they
/// have asked how long the key lives, since the first could have it.
async fn assert_order(build: impl Fn() -> RedlockBuilder, servers: &RedisServers) -> u64 {
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
    let watches = || clis(servers).iter().map(|it| it.calls("pttl")).sum::<u64>();
    let before = watches();
    held.release().await;
    for it in waiting {
        it.await.unwrap();
    }
    let watches = watches() - before;
    for redlock in processes {
        redlock.shutdown(None).await;
    }
    eventually("nobody stands in the line", || standing(servers) == 0).await;
    let order = order.lock().unwrap();
    assert!(order.is_sorted() && order.len() == WAITING, "{order:?}");
    watches
}

/// Returns how many processes stand in the line of `k`, on whichever node has it.
fn standing(servers: &RedisServers) -> usize {
    let lengths = each(&clis(servers), &["ZCARD", LINE]);
    let lengths = lengths.iter().map(|it| it.parse().unwrap());
    lengths.max().unwrap()
}

/// Those that are not called, since they speak RESP2, ask for their place. Of those that are called, all but the first
/// hardly ever watch the key. Each lists the nodes in another order.
#[tokio::test]
async fn processes_get_a_lock_in_the_order_in_which_they_came() {
    let servers = RedisServers::spawn(5).unwrap();
    for protocol in ["resp3", "resp2"] {
        let turned = Cell::new(0);
        let build = || {
            let urls = servers.urls().into_iter();
            let mut urls: Vec<_> = urls.map(|it| format!("{it}?protocol={protocol}")).collect();
            turned.set(turned.get() + 1);
            urls.rotate_left(turned.get() % 5);
            trusting(urls)
        };
        let watches = assert_order(build, &servers).await;
        let all_watch = 5 * (WAITING as u64 - 1);
        assert_eq!(watches < all_watch, protocol == "resp3", "{watches}");
    }
}

#[tokio::test]
async fn a_process_alone_takes_no_place() {
    let (servers, [redlock]) = fleet(1).await;
    let cli = Cli::of(servers.get(0));
    for _ in 0..1000 {
        drop(redlock.lock("k").await.unwrap());
    }
    let (asks, joins) = (cli.calls("evalsha"), cli.calls("zadd"));
    assert!(asks > 0 && joins == 0, "{asks}, {joins}");
}

#[tokio::test]
async fn without_the_rights_of_a_line_there_is_a_lock_without_an_order() {
    let servers = RedisServers::spawn(1).unwrap();
    // A process that cannot be called asks for its place.
    let url = limited(servers.get(0), "+@all ~* resetchannels");
    assert_order(|| trusting([&url]), &servers).await;

    let url = limited(servers.get(0), "+@all ~k");
    let build = async || built(trusting([&url])).await;
    let (one, other) = (build().await, build().await);
    let guard = one.lock("k").await.unwrap();
    let waiting = waiting_at(&clis(&servers), other.lock("k").wait(MINUTE)).await;
    guard.release().await;
    drop(waiting.await.unwrap().expect("a lock"));
    assert_eq!(standing(&servers), 0);
}

/// Sessions that take places and never move are processes that were stopped, and killed once their connections end. Names that are
/// no members are nobody.
#[tokio::test]
async fn row_64_the_dead_and_names_of_nobody_cost_those_behind_them_four_seconds_together() {
    for is_killed in [false, true] {
        let (servers, [holder, waiter]) = fleet(1).await;
        let held = holder.lock("k").await.unwrap();
        let node = RedisNode::from_url(&servers.get(0).url()).unwrap();
        let mut sessions = Vec::new();
        for number in 0..32 {
            let mut session = node.connect().await.unwrap();
            assert!(session.watch(FreedNotifier::new(|_| {})));
            let request = asking("k", join(number));
            session.line(&[request]).await.unwrap();
            sessions.push(session);
        }
        let cli = Cli::of(servers.get(0));
        for name in ["", "nobody", "00000000000000ff-", "\u{1f512}"] {
            cli.run(&["ZADD", LINE, "1", name]);
        }
        let waiting = tokio::spawn(waiter.lock("k").wait(MINUTE).into_future());
        eventually("the waiter stands behind", || {
            waiter.processes_ahead("k") == Some(32)
        })
        .await;
        if is_killed {
            sessions.clear();
        }
        let died = Instant::now();
        eventually("the waiter is the first", || {
            waiter.processes_ahead("k") == Some(0)
        })
        .await;
        let took = died.elapsed();
        assert!(
            took < Duration::from_secs(4),
            "{took:?}, killed: {is_killed}"
        );
        held.release().await;
        drop(waiting.await.unwrap().unwrap());
        eventually("nobody stands in the line", || standing(&servers) == 0).await;
        // Theirs begin with zeros. The one of a client is random.
        let left = cli.run(&["SCAN", "0", "MATCH", "redlock:line:living:{}:00000000*"]);
        assert_eq!(left, "0\n", "the places of the dead are forgotten");
        for name in ["redlock:line:living:{}", "redlock:line:living:{}:count"] {
            assert!(cli.pttl(name) > 0, "{name} stays for ever");
        }
    }
}

/// One script removes a thousand places at most, and calls at each of them. The next beat goes on at once.
#[tokio::test]
async fn row_64_a_process_that_dies_in_very_many_lines_leaves_all_of_them() {
    const KEYS: usize = 2_500;
    let servers = RedisServers::spawn(1).unwrap();
    let node = RedisNode::from_url(&servers.get(0).url()).unwrap();
    let called = Arc::new(Mutex::new(HashSet::new()));
    let mut sessions = [node.connect().await.unwrap(), node.connect().await.unwrap()];
    let note = Arc::clone(&called);
    assert!(sessions[0].watch(FreedNotifier::new(|_| {})));
    assert!(sessions[1].watch(FreedNotifier::new(move |notice| {
        if let Notice::Called { key, .. } = notice {
            note.lock().unwrap().insert(key.to_vec());
        }
    })));
    for (number, session) in (0..).zip(&mut sessions) {
        let request = |key: usize| asking(&key.to_string(), join(number));
        let joins: Vec<_> = (0..KEYS).map(request).collect();
        session.line(&joins).await.unwrap();
    }
    // The first leaves all lines, and the second beats until there is no more to be done.
    let mut rounds = 0;
    let mut has_more = true;
    while has_more {
        let beat = LineAction::Beat {
            member: Member(rounds.min(1)),
            leaves_all: rounds == 0,
        };
        let answers = sessions[1].line(&[asking("0", beat)]).await.unwrap();
        has_more = matches!(answers[0], LineAnswer::Alive { has_more: true, .. });
        rounds += 1;
    }
    assert_eq!(rounds, 3, "a thousand at a time");
    eventually("all are called", || called.lock().unwrap().len() == KEYS).await;
}
