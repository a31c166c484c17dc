//! The rights that each feature needs. Each set is enough. Without any one of its rights, the feature fails.

use redlock_kit::RedisServers;
use redlock_tokio::{LockGuard, LockOptions, Redlock, ReleaseOutcome};

use crate::support::{Cli, MS, acl, eventually, trusting};

/// A feature, and the rights that a client needs for it.
struct Feature {
    name: &'static str,
    commands: &'static [&'static str],
    keys: &'static [&'static str],
    is_used: Use,
}

#[derive(Clone, Copy)]
enum Use {
    OneKey,
    Fence,
    SeveralKeys,
    SeveralFenced,
    Readers,
    Writer,
    Adoption,
}

/// The commands of one key, with a fence or without.
const IN_FULL: &[&str] = &["info", "set", "pttl", "mget", "pexpire", "del", "eval"];
const BY_HASH: &[&str] = &[
    "info",
    "set",
    "pttl",
    "mget",
    "pexpire",
    "del",
    "script|load",
    "evalsha",
];

/// All features work without `HELLO`, `CLIENT`, `MULTI`, `DISCARD` and `PING`. `HELLO`,
/// `CLIENT TRACKING` and `CLIENT CACHING` let the server report that a key is free.
const FEATURES: [Feature; 10] = [
    Feature {
        name: "one key, scripts called by hash",
        commands: BY_HASH,
        keys: &["app:*"],
        is_used: Use::OneKey,
    },
    Feature {
        name: "one key, scripts sent in full",
        commands: IN_FULL,
        keys: &["app:*"],
        is_used: Use::OneKey,
    },
    Feature {
        name: "a fence, scripts called by hash",
        commands: BY_HASH,
        keys: &["app:*", "redlock:fence:*"],
        is_used: Use::Fence,
    },
    Feature {
        name: "a fence, scripts sent in full",
        commands: IN_FULL,
        keys: &["app:*", "redlock:fence:*"],
        is_used: Use::Fence,
    },
    Feature {
        name: "several keys",
        commands: &[
            "info", "set", "pttl", "mget", "pexpire", "del", "eval", "exists",
        ],
        keys: &["app:*"],
        is_used: Use::SeveralKeys,
    },
    Feature {
        name: "several keys with a fence",
        commands: &[
            "info", "set", "pttl", "mget", "pexpire", "del", "eval", "exists",
        ],
        keys: &["app:*", "redlock:fence:*"],
        is_used: Use::SeveralFenced,
    },
    Feature {
        // Without a right to marks, a writer that waits does not keep readers out.
        name: "a writer, scripts called by hash",
        commands: BY_HASH,
        keys: &["app:*"],
        is_used: Use::Writer,
    },
    Feature {
        name: "a writer, scripts sent in full",
        commands: IN_FULL,
        keys: &["app:*"],
        is_used: Use::Writer,
    },
    Feature {
        name: "an adoption",
        commands: IN_FULL,
        keys: &["app:*"],
        is_used: Use::Adoption,
    },
    Feature {
        name: "readers",
        commands: &[
            "info",
            "set",
            "pttl",
            "mget",
            "pexpire",
            "del",
            "eval",
            "exists",
            "time",
            "pexpireat",
            "zadd",
            "zrem",
            "zscore",
            "zrange",
            "zremrangebyscore",
        ],
        keys: &["app:*", "redlock:readers:*", "redlock:wait:*"],
        is_used: Use::Readers,
    },
];

/// Locks, extends and releases with these rights alone.
async fn try_out(
    servers: &RedisServers,
    commands: &[&str],
    keys: &[&str],
    feature: Use,
) -> Result<(), String> {
    let sends_scripts = matches!(feature, Use::OneKey) && commands.contains(&"eval");
    let server = servers.get(0);
    let commands = commands.iter().map(|it| format!("+{it}"));
    let keys = keys.iter().map(|it| format!("~{it}"));
    let rules: Vec<_> = commands.chain(keys).collect();
    let user = ["ACL", "SETUSER", "locker", "reset", "on", ">pw", "-@all"];
    let rules: Vec<_> = user
        .into_iter()
        .chain(rules.iter().map(|it| &**it))
        .collect();
    assert_eq!(Cli::of(server).run(&rules), "OK");
    let url = format!("redis://locker:pw@127.0.0.1:{}", server.port());
    let redlock = trusting([&url])
        .build()
        .await
        .map_err(|it| it.to_string())?;
    let guard = acquire(&redlock, feature).await?;
    guard.extend().await.map_err(|it| it.to_string())?;
    if sends_scripts {
        // It needs no more, unless readers are to be seen.
        let inspection = redlock.inspect("app:a").await.unwrap();
        assert_eq!(inspection.holders().len(), 1, "{inspection}");
    }
    match guard.release().await.outcome {
        ReleaseOutcome::Released => Ok(()),
        outcome => Err(format!("{outcome:?}")),
    }
}

async fn acquire(redlock: &Redlock, feature: Use) -> Result<LockGuard, String> {
    let options = LockOptions::new().no_renewal().wait(MS(0));
    let lock = match feature {
        Use::OneKey => redlock.lock("app:a").options(options),
        Use::Adoption => {
            let given = redlock.lock("app:i").options(options).await;
            let ticket = given.map_err(|it| it.to_string())?.into_ticket();
            let adopted = redlock.adopt(ticket.map_err(|it| it.to_string())?);
            return adopted.await.map_err(|it| it.to_string());
        }
        Use::Fence => redlock.lock("app:b").fenced(true).options(options),
        Use::Readers => redlock.rw_lock("app:g").read().options(options),
        Use::Writer => redlock.rw_lock("app:h").write().options(options),
        Use::SeveralKeys => redlock.lock_all(["app:c", "app:d"]).options(options),
        Use::SeveralFenced => redlock
            .lock_all(["app:e", "app:f"])
            .fenced(true)
            .options(options),
    };
    lock.await.map_err(|it| it.to_string())
}

#[tokio::test]
async fn each_right_of_a_feature_is_needed_and_all_together_are_enough() {
    let servers = RedisServers::spawn(1).unwrap();
    for feature in FEATURES {
        let Feature {
            name,
            commands,
            keys,
            is_used,
        } = feature;
        let outcome = try_out(&servers, commands, keys, is_used).await;
        assert_eq!(outcome, Ok(()), "{name}");
        for missing in commands {
            let rest: Vec<_> = commands
                .iter()
                .copied()
                .filter(|it| it != missing)
                .collect();
            let outcome = try_out(&servers, &rest, keys, is_used).await;
            assert!(outcome.is_err(), "{name} works without {missing}");
        }
        for missing in keys {
            let rest: Vec<_> = keys.iter().copied().filter(|it| it != missing).collect();
            let outcome = try_out(&servers, commands, &rest, is_used).await;
            assert!(outcome.is_err(), "{name} works without {missing}");
        }
    }
}

/// The writer has its key until it releases it.
#[tokio::test]
async fn a_downgrade_without_the_rights_of_a_reader_changes_nothing_on_a_server() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = Cli::of(servers.get(0));
    for (less, missing) in [
        (&["-pexpireat"][..], "PEXPIREAT"),
        (&["-time"], "TIME"),
        (&["resetkeys", "~app:*"], "redlock:readers:*"),
    ] {
        let user = ["ACL", "SETUSER", "locker", "reset", "on", ">pw", "+@all"];
        let rules = [&user, &["~app:*", "~redlock:*"][..], less].concat();
        assert_eq!(server.run(&rules), "OK");
        let url = format!("redis://locker:pw@127.0.0.1:{}", servers.get(0).port());
        let redlock = trusting([&url]).build().await.unwrap();
        let guard = redlock.rw_lock("app:k").write().await.unwrap();
        let error = guard.downgrade().await.unwrap_err().to_string();
        assert!(error.contains(missing), "{error}");
        assert_eq!(server.run(&["KEYS", "*"]), "app:k");
        assert_eq!(server.get("app:k"), Some(guard.value()));
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
        assert_eq!(server.get("app:k"), None);
    }
}

/// With less, the server would list in `ACL LOG` what it has refused.
#[tokio::test]
async fn the_line_for_a_server_is_enough_for_all_features_and_leaves_nothing_in_the_log() {
    let servers = RedisServers::spawn(2).unwrap();
    let server = Cli::of(servers.get(0));
    // A promotion, so that the clients need the marker.
    let port = servers.get(1).port().to_string();
    assert_eq!(server.run(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    let is_up = || {
        let replication = server.run(&["INFO", "replication"]);
        replication.contains("master_link_status:up")
    };
    eventually("it follows", is_up).await;
    assert_eq!(server.run(&["REPLICAOF", "NO", "ONE"]), "OK");

    acl::create_user(&server, "~lock:*");
    let url = servers
        .get(0)
        .url()
        .replace("://", &format!("://{}", acl::USER));
    let build = || {
        let builder = Redlock::builder().nodes([&url]).prefix(acl::PREFIX);
        builder.ttl(MS(2000)).node_timeout(MS(500)).build()
    };
    let clients = [build().await.unwrap(), build().await.unwrap()];
    for client in &clients {
        client.ready(MS(60_000)).await.unwrap();
    }
    acl::use_everything(&server, &clients).await;
    let markers = server.run(&["KEYS", "redlock:since:*"]);
    assert!(!markers.is_empty(), "the marker was needed");
    acl::assert_quiet(&server);

    assert_eq!(server.run(&["ACL", "SETUSER", "locker", "-ping"]), "OK");
    drop(build().await.unwrap().try_lock("k").await);
    let log = server.run(&["ACL", "LOG"]);
    assert!(log.contains("ping"), "the log would show it: {log}");
}
