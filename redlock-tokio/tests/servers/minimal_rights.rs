//! The rights that a client needs: most commands of the line in `DEPLOYMENTS.md`, and the keys of each feature.

use redlock_kit::RedisServers;
use redlock_tokio::{Lock, LockGuard, Redlock, ReleaseOutcome};

use crate::support::{
    Cli, MS,
    acl::{self, limited},
    assert_says, built, eventually, trusting,
};

/// The commands of the line without which locks work. Scripts are then sent in full, and waiters ask for free keys.
const SPARED: [&str; 7] = [
    "evalsha",
    "script|load",
    "multi",
    "ping",
    "subscribe",
    "client|tracking",
    "client|caching",
];

/// Extends and releases a lock.
async fn try_out(guard: LockGuard) {
    guard.extend().await.unwrap();
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn row_46_each_command_of_the_line_is_named_if_it_is_missing() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = Cli::of(servers.get(0));
    let url = servers.get(0).url();
    let url = url.replace("://", &format!("://{}", acl::USER));
    let line = acl::line("~lock:*");
    let commands: Vec<_> = line.iter().filter(|it| it.starts_with('+')).collect();
    assert!(commands.len() > 20, "{line:?}");
    for missing in commands {
        let rest = line.iter().filter(|it| it != &missing).copied();
        server.run(&["ACL", "DELUSER", "locker"]);
        assert_eq!(server.run(&rest.collect::<Vec<_>>()), "OK");
        let name = missing.trim_start_matches('+');
        match trusting([&url]).prefix(acl::PREFIX).build().await {
            Ok(redlock) => {
                assert!(SPARED.contains(&name), "it works without {name}");
                try_out(redlock.lock("one").await.unwrap()).await;
                try_out(redlock.rw_lock("many").read().await.unwrap()).await;
            }
            Err(error) => {
                assert!(!SPARED.contains(&name), "{error}");
                assert_says(&error, &servers.get(0).address().to_string());
                let text = error.to_string().to_uppercase();
                let mut words = text.split(|it: char| !it.is_alphanumeric());
                assert!(words.any(|it| it == name.to_uppercase()), "{error}");
            }
        }
    }
}

/// Returns a client that may use all commands, and these keys alone.
async fn with_keys(servers: &RedisServers, keys: &[&str]) -> Redlock {
    let url = limited(servers.get(0), &format!("+@all {}", keys.join(" ")));
    built(trusting([url])).await
}

#[tokio::test]
async fn each_key_of_a_feature_is_needed_and_all_together_are_enough() {
    const FENCED: [fn(&Redlock) -> Lock; 2] = [
        |it| it.lock("app:a").fenced(true),
        |it| it.lock_all(["app:b", "app:c"]).fenced(true),
    ];
    const READER: [fn(&Redlock) -> Lock; 1] = [|it| it.rw_lock("app:d").read()];
    // Without a right to marks, a writer that waits does not keep readers out.
    const OTHERS: [fn(&Redlock) -> Lock; 3] = [
        |it| it.lock("app:e"),
        |it| it.lock_all(["app:f", "app:g"]),
        |it| it.rw_lock("app:h").write(),
    ];
    let servers = RedisServers::spawn(1).unwrap();
    for (features, keys) in [
        (&FENCED[..], &["~app:*", "~redlock:fence:*"][..]),
        (
            &READER,
            &["~app:*", "~redlock:readers:*", "~redlock:wait:*"],
        ),
        (&OTHERS, &["~app:*"]),
    ] {
        let redlock = with_keys(&servers, keys).await;
        for lock in features {
            try_out(lock(&redlock).await.unwrap()).await;
        }
        let ticket = redlock.lock("app:i").await.unwrap().into_ticket();
        try_out(redlock.adopt(ticket.unwrap()).await.unwrap()).await;
        for missing in keys {
            let rest: Vec<_> = keys.iter().copied().filter(|it| it != missing).collect();
            let redlock = with_keys(&servers, &rest).await;
            for lock in features {
                let error = lock(&redlock).wait(MS(0)).await.expect_err(missing);
                assert_says(&error, "NOPERM");
                if *missing == "~redlock:fence:*" {
                    assert_says(&error, "grant the key pattern redlock:fence:*");
                }
            }
        }
    }
}

/// The writer has its key until it releases it.
#[tokio::test]
async fn a_downgrade_without_the_rights_of_a_reader_changes_nothing_on_a_server() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = Cli::of(servers.get(0));
    let redlock = with_keys(&servers, &["~app:*"]).await;
    let guard = redlock.rw_lock("app:k").write().await.unwrap();
    assert_says(&guard.downgrade().await.unwrap_err(), "redlock:readers:*");
    assert_eq!(server.run(&["KEYS", "*"]), "app:k");
    assert_eq!(server.get("app:k"), Some(guard.value()));
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    assert_eq!(server.get("app:k"), None);
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
