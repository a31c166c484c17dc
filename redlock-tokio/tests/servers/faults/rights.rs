//! The fault matrix, row 46: rights that are missing because of an ACL or a renamed command. The client finds this out
//! when it connects to a node, before the node grants a lock that it could not extend or release.

use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{BuildError, Redlock, RedlockBuilder, ReleaseOutcome};

use crate::support::{Cli, acl::limited, assert_says, built, trusting, unrenewed};

/// Starts a server, and returns the URL of a user with these rights.
fn server_for(rights: &str) -> (RedisServers, String) {
    let servers = RedisServers::spawn(1).unwrap();
    let url = limited(servers.get(0), rights);
    (servers, url)
}

async fn refusal(builder: RedlockBuilder) -> String {
    assert_refused!(builder.build().await, BuildError::Refused { .. }).to_string()
}

/// Locks, extends and releases, and checks that no key is left.
async fn assert_works(server: &RedisServer, redlock: &Redlock) {
    let guard = unrenewed(redlock.lock("k")).await;
    guard.extend().await.expect("extended");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    let guards = [redlock.lock("a").await, redlock.lock("b").await];
    drop(guards.map(Result::unwrap));
    redlock.shutdown(None).await;
    assert_eq!(Cli::of(server).run(&["DBSIZE"]), "0");
}

#[tokio::test]
async fn row_46_renamed_commands_are_found_out() {
    for renamed in ["EVAL", "DEL", "SET"] {
        let servers = RedisServers::spawn_with(1, &["--rename-command", renamed, ""]).unwrap();
        assert_says(&refusal(trusting(servers.urls())).await, renamed);
    }
}

#[tokio::test]
async fn row_46_a_script_is_sent_in_full_where_it_may_not_be_called_by_its_hash() {
    // The questions at connect change nothing, even if they are not asked in a transaction.
    let (servers, url) = server_for("~* &* +@all -evalsha -multi -discard");
    assert_works(servers.get(0), &built(trusting([url])).await).await;
    let arguments = ["--rename-command", "EVALSHA", ""];
    let servers = RedisServers::spawn_with(1, &arguments).unwrap();
    assert_works(servers.get(0), &built(servers.builder()).await).await;
}

#[tokio::test]
async fn row_46_a_node_that_refuses_keys_with_the_prefix_is_refused_and_named() {
    let (servers, url) = server_for("+@all ~lock:* ~redlock:*");
    let over = |prefix: &str| trusting([&url]).prefix(prefix);
    let text = refusal(over("other:")).await;
    assert_says(&text, "grant the key pattern other:*");
    assert_says(&text, &servers.get(0).address().to_string());
    assert_works(servers.get(0), &built(over("lock:")).await).await;
    // Rights to a part of the keys are not enough.
    refusal(over("lo")).await;
    let cli = Cli::of(servers.get(0));
    // Redis before 7.0 knows no rights only to read.
    if cli.run(&["ACL", "SETUSER", "locker", "%R~other:*"]) == "OK" {
        refusal(over("other:")).await;
    }
}

#[tokio::test]
async fn a_prefix_under_which_no_lock_can_work_is_refused() {
    let embedded = |prefix: &str| Redlock::builder().embedded().prefix(prefix);
    for reserved in ["redlock:fence:", "redlock:since:", "redlock:owner:"] {
        for prefix in [reserved.to_owned(), format!("{reserved}app:")] {
            let outcome = embedded(&prefix).build().await;
            let name = assert_refused!(outcome, BuildError::ReservedPrefix { name } => name);
            assert_eq!(name, reserved);
        }
    }
    let redlock = built(embedded("redlock:")).await;
    assert!(redlock.lock("k").await.is_ok());
    assert!(redlock.lock("owner:k").await.is_err());
}
