//! The fault matrix, row 46 and a part of row 30: rights that are missing because of an ACL or a renamed
//! command. The client finds this out when it connects to a node, before the node grants a lock that it
//! could not extend or release.

use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{BuildError, LockError, Redlock, RedlockBuilder, ReleaseOutcome};

use crate::support::{
    Cli, MS,
    acl::limited,
    assert_says, built,
    states::{is_refused, voting},
    trusting, unrenewed,
};

const ALL: &str = "~* &* +@all";

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
async fn row_46_a_node_that_cannot_release_is_refused_and_named() {
    for (denied, missing) in [
        ("-eval", "EVAL"),
        ("-mget", "MGET"),
        ("-del", "DEL"),
        ("-pexpire", "PEXPIRE"),
    ] {
        let (servers, url) = server_for(&format!("{ALL} {denied}"));
        let text = refusal(trusting([url])).await;
        assert_says(&text, &format!("were renamed: {missing}"));
        assert_says(&text, &servers.get(0).address().to_string());
    }
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
    let (servers, url) = server_for(&format!("{ALL} -evalsha"));
    assert_works(servers.get(0), &built(trusting([url])).await).await;
    let arguments = ["--rename-command", "EVALSHA", ""];
    let servers = RedisServers::spawn_with(1, &arguments).unwrap();
    assert_works(servers.get(0), &built(servers.builder()).await).await;
}

/// The questions have no effect, even if they are not asked in a transaction.
#[tokio::test]
async fn the_questions_at_connect_change_nothing() {
    for denied in ["+info", "-multi -discard"] {
        let (servers, url) = server_for(&format!("{ALL} {denied}"));
        let cli = Cli::of(servers.get(0));
        cli.set("redlock:probe", "a value");
        let _redlock = built(trusting([&url])).await;
        assert_eq!(cli.get("redlock:probe").as_deref(), Some("a value"));
        assert_eq!(cli.pttl("redlock:probe"), -1);
        assert_eq!(cli.run(&["DBSIZE"]), "1");
    }
}

/// The client does not wait for ever in a transaction that it may not leave.
#[tokio::test]
async fn a_user_that_may_begin_but_not_leave_a_transaction_is_refused() {
    let (_servers, url) = server_for(&format!("{ALL} -discard"));
    assert_says(&refusal(trusting([url])).await, "DISCARD");
}

#[tokio::test]
async fn rights_that_are_granted_later_are_found_out() {
    let (servers, url) = server_for(&format!("{ALL} -set"));
    let whole = RedisServers::spawn(2).unwrap();
    let redlock = built(trusting(whole.urls().into_iter().chain([url]))).await;
    assert!(is_refused(&redlock, 2), "{:?}", redlock.nodes());
    Cli::of(servers.get(0)).set_locker(&["+set"]);
    voting(&redlock, 2).await;
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

/// Without a prefix, the client does not ask at connect which keys it may use.
#[tokio::test]
async fn a_fenced_lock_without_a_right_to_its_counter_names_the_counter() {
    let (_servers, url) = server_for("+@all ~order:*");
    let redlock = built(trusting([&url])).await;
    drop(redlock.lock("order:1").await.expect("without a fence"));
    let outcome = redlock.lock("order:2").fenced(true).wait(MS(0)).await;
    let error = assert_refused!(outcome, LockError::NoQuorum(_));
    assert_says(&error, "redlock:fence:{order:2}");
    assert_says(&error, "grant the key pattern redlock:fence:*");
}
