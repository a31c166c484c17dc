//! The start of a service: nodes that refuse it, one server under two addresses, servers that have just
//! started.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::FutureExt;
use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{
    BuildError, MemoryNode, NodeState, Redlock, Role, ServerInfo,
    node::{RunId, Server},
};

use crate::support::{
    Cli, MS,
    acl::limited,
    assert_says, built,
    scripted::{Scripted, over_custom},
    states::{is_refused, state, voting},
    trusting,
};

/// A way in which a server refuses a client, and its repair.
struct Fault {
    break_it: fn(&RedisServer),
    mend: fn(&RedisServer),
    says: &'static str,
}

fn admin(server: &RedisServer, command: &str) {
    let words: Vec<_> = command.split(' ').collect();
    let answer = Cli::of(server).with(&["-a", "hunter2"]).run(&words);
    assert_eq!(answer, "OK", "{command}");
}

const FAULTS: [Fault; 3] = [
    // A replica.
    Fault {
        break_it: |server| admin(server, "REPLICAOF 127.0.0.1 1"),
        mend: |server| admin(server, "REPLICAOF NO ONE"),
        says: "a replica of 127.0.0.1:1",
    },
    // A wrong password.
    Fault {
        break_it: |server| admin(server, "CONFIG SET requirepass hunter2"),
        // No word behind the space is an empty one.
        mend: |server| admin(server, "CONFIG SET requirepass "),
        says: "the server asks for a password",
    },
    // Missing rights.
    Fault {
        break_it: |server| admin(server, "ACL SETUSER default -set -pttl"),
        mend: |server| admin(server, "ACL SETUSER default +@all"),
        says: "SET, PTTL",
    },
];

#[tokio::test]
async fn a_service_starts_while_a_minority_refuses_it_and_not_where_a_majority_does() {
    for fault in FAULTS {
        let servers = RedisServers::spawn(5).unwrap();
        for index in [1, 3] {
            (fault.break_it)(servers.get(index));
        }
        let redlock = built(trusting(servers.urls())).await;
        for (index, node) in redlock.nodes().into_iter().enumerate() {
            let is_refused = matches!(&node.state, NodeState::Refused(error) if error.to_string().contains(fault.says));
            assert_eq!(is_refused, [1, 3].contains(&index), "{node:?}");
        }
        drop(redlock.lock("k").await.expect("three of five vote"));

        servers.get(4).kill();
        (fault.break_it)(servers.get(0));
        let error = trusting(servers.urls()).build().await.unwrap_err();
        assert_says(&error, fault.says);
        for (index, server) in servers.iter().enumerate() {
            let is_named = error.to_string().contains(&server.address().to_string());
            assert_eq!(is_named, [0, 1, 3].contains(&index), "{error}");
        }

        // The lane asks the node again until it agrees.
        (fault.mend)(servers.get(1));
        voting(&redlock, 1).await;
    }
}

/// A node that identifies its server after a delay.
fn slow(address: &str, delay: u64, info: ServerInfo) -> Scripted {
    let slow = Scripted::obeying(&MemoryNode::new()).address(address);
    let slow = slow.server(move || Server::Known(info.clone()));
    slow.connect(move || tokio::time::sleep(MS(delay)).map(Ok).boxed())
}

fn server(letter: char) -> ServerInfo {
    let digits = [u8::try_from(letter).unwrap(); RunId::LEN];
    ServerInfo::new(RunId::new(digits), Duration::from_secs(3600))
}

/// The error does not depend on which address answers first, nor on other faults of the server.
#[tokio::test(start_paused = true)]
async fn one_server_under_two_addresses_fails_the_build_in_the_same_words_each_time() {
    let mut texts = BTreeSet::new();
    for is_replica in [false, true] {
        for delays in [[0, 0], [0, 900], [900, 0], [5, 5], [1, 2]] {
            let mut twice = server('b');
            if is_replica {
                twice.role = Role::ReplicaOf("master:6379".to_owned());
            }
            let nodes = [
                slow("one", 3, server('a')),
                slow("two", delays[0], twice.clone()),
                slow("three", 2, server('c')),
                slow("four", delays[1], twice),
                slow("five", 0, server('e')),
            ];
            let outcome = over_custom(nodes).build().await;
            let error = outcome.expect_err("one server would vote twice");
            texts.insert(error.to_string());
        }
    }
    let text = texts.first().unwrap();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(text.contains("two and four are one server"), "{text}");
}

/// Returns the URL of a user who may use all commands except this one. It has the server's Unix socket, so its
/// address differs from [`RedisServer::url`].
fn all_rights_except(server: &RedisServer, denied: &str) -> String {
    limited(server, &format!("~* &* +@all -{denied}"));
    format!("{}?user=locker&pass=pw", server.unix_url())
}

#[tokio::test]
async fn one_server_under_two_addresses_fails_the_build_even_if_one_user_lacks_a_right() {
    for denied in ["set", "discard"] {
        let servers = RedisServers::spawn(2).unwrap();
        let twice = servers.get(0);
        let limited = all_rights_except(twice, denied);
        for [first, second] in [[twice.url(), limited.clone()], [limited, twice.url()]] {
            let urls = [first, second, servers.get(1).url()];
            let outcome = trusting(urls).build().await;
            assert_refused!(outcome, BuildError::SameServer { .. });
        }
    }
}

#[tokio::test]
async fn a_replica_on_which_rights_are_missing_is_named_as_a_replica() {
    let servers = RedisServers::spawn(3).unwrap();
    let limited = all_rights_except(servers.get(0), "set");
    admin(servers.get(0), "REPLICAOF 127.0.0.1 1");
    let urls = [limited, servers.get(1).url(), servers.get(2).url()];
    let redlock = built(trusting(urls)).await;
    assert!(is_refused(&redlock, 0), "{:?}", redlock.nodes());
    assert_says(&state(&redlock, 0), "a replica of 127.0.0.1:1");
}

/// A service with default settings, over five servers that were started as the compose file of `DEPLOYMENTS.md` shows.
#[tokio::test]
async fn five_fresh_servers_give_locks_after_the_longest_ttl() {
    let page = include_str!("../../DEPLOYMENTS.md");
    let mut commands = page
        .lines()
        .filter_map(|it| it.trim().strip_prefix("command: "));
    let command: Vec<&str> = serde_json::from_str(commands.next().expect("a command")).unwrap();
    assert_eq!(command[0], "redis-server");
    let servers = RedisServers::spawn_with(5, &command[1..]).unwrap();
    let start = Instant::now();
    let redlock = Redlock::connect(servers.urls()).await.unwrap();
    redlock.try_lock("k").await.unwrap_err();
    redlock.ready(Duration::ZERO).await.unwrap_err();
    redlock.ready(Duration::from_secs(20)).await.unwrap();
    let ready = start.elapsed().as_secs_f64();
    assert!((9.0..12.5).contains(&ready), "{ready}");
    drop(redlock.lock("k").await.unwrap());
}
