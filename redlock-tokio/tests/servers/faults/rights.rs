//! The fault matrix, row 46 and a part of row 30: rights that are missing because of an ACL or a renamed
//! command. The client finds this out when it connects to a node, before the node grants a lock that it
//! could not extend or release.

use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{BuildError, LockError, Redlock, ReleaseOutcome};

use crate::support::{
    Cli, MS, assert_says, locker,
    states::{is_refused, voting},
    trusting, unrenewed,
};

/// Starts a server, and returns the URL of a user who may use all commands except these.
fn all_rights_except(denied: &[&str]) -> (RedisServers, String) {
    let servers = RedisServers::spawn(1).unwrap();
    let denied = denied.iter().map(|it| format!("-{it}")).collect::<Vec<_>>();
    let mut rules = vec!["on", ">pw", "~*", "&*", "+@all"];
    rules.extend(denied.iter().map(|it| &**it));
    Cli::of(servers.get(0)).set_locker(&rules);
    let url = locker(servers.get(0));
    (servers, url)
}

async fn refusal(url: &str) -> String {
    match trusting([url]).build().await {
        Err(error @ BuildError::Refused { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
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
    for denied in ["eval", "mget", "del", "pexpire"] {
        let (servers, url) = all_rights_except(&[denied]);
        let text = refusal(&url).await;
        let missing = format!("were renamed: {}", denied.to_uppercase());
        assert_says(&text, &missing);
        let address = servers.get(0).address().to_string();
        assert!(text.contains(&address), "{text}");
    }
}

#[tokio::test]
async fn row_46_renamed_commands_are_found_out() {
    for renamed in ["EVAL", "DEL", "SET"] {
        let servers = RedisServers::spawn_with(1, &["--rename-command", renamed, ""]).unwrap();
        let text = refusal(&servers.get(0).url()).await;
        assert!(text.contains(renamed), "{text}");
    }
}

#[tokio::test]
async fn row_46_a_script_is_sent_in_full_where_it_may_not_be_called_by_its_hash() {
    let (servers, url) = all_rights_except(&["evalsha"]);
    assert_works(servers.get(0), &trusting([&url]).build().await.unwrap()).await;
    let arguments = ["--rename-command", "EVALSHA", ""];
    let servers = RedisServers::spawn_with(1, &arguments).unwrap();
    let redlock = servers.builder().build().await.unwrap();
    assert_works(servers.get(0), &redlock).await;
}

/// The questions have no effect, even if they are not asked in a transaction.
#[tokio::test]
async fn the_questions_at_connect_change_nothing() {
    let sets: [&[&str]; 2] = [&[], &["multi", "discard"]];
    for denied in sets {
        let (servers, url) = all_rights_except(denied);
        let cli = Cli::of(servers.get(0));
        cli.set("redlock:probe", "a value");
        let _redlock = trusting([&url]).build().await.unwrap();
        assert_eq!(cli.get("redlock:probe").as_deref(), Some("a value"));
        assert_eq!(cli.pttl("redlock:probe"), -1);
        assert_eq!(cli.run(&["DBSIZE"]), "1");
    }
}

/// The client does not wait for ever in a transaction that it may not leave.
#[tokio::test]
async fn a_user_that_may_begin_but_not_leave_a_transaction_is_refused() {
    let (_servers, url) = all_rights_except(&["discard"]);
    assert!(refusal(&url).await.contains("DISCARD"));
}

#[tokio::test]
async fn rights_that_are_granted_later_are_found_out() {
    let (servers, url) = all_rights_except(&["set"]);
    let whole = RedisServers::spawn(2).unwrap();
    let urls = whole.urls().into_iter().chain([url]);
    let redlock = trusting(urls).build().await.expect("two of three");
    assert!(is_refused(&redlock, 2), "{:?}", redlock.nodes());
    Cli::of(servers.get(0)).set_locker(&["+set"]);
    voting(&redlock, 2).await;
}

/// Starts a server, and returns the URL of a user who may use these keys alone.
fn rights_to_keys(keys: &[&str]) -> (RedisServers, String) {
    let servers = RedisServers::spawn(1).unwrap();
    let rules = [&["on", ">pw", "+@all"], keys].concat();
    Cli::of(servers.get(0)).set_locker(&rules);
    let url = locker(servers.get(0));
    (servers, url)
}

#[tokio::test]
async fn row_46_a_node_that_refuses_keys_with_the_prefix_is_refused_and_named() {
    let (servers, url) = rights_to_keys(&["~lock:*", "~redlock:*"]);
    let build = |prefix: &str| trusting([&url]).prefix(prefix).build();
    let text = match build("other:").await {
        Err(error @ BuildError::Refused { .. }) => error.to_string(),
        outcome => panic!("{outcome:?}"),
    };
    assert!(text.contains("grant the key pattern other:*"), "{text}");
    assert_says(&text, &servers.get(0).address().to_string());

    let redlock = build("lock:").await.unwrap();
    assert_works(servers.get(0), &redlock).await;
    // Rights to a part of the keys are not enough.
    assert!(build("lo").await.is_err());
    let cli = Cli::of(servers.get(0));
    // Redis before 7.0 knows no rights only to read.
    if cli.run(&["ACL", "SETUSER", "locker", "%R~other:*"]) == "OK" {
        assert!(build("other:").await.is_err());
    }
}

#[tokio::test]
async fn a_prefix_under_which_no_lock_can_work_is_refused() {
    for name in ["redlock:fence:", "redlock:since:", "redlock:owner:"] {
        for prefix in [name.to_owned(), format!("{name}app:")] {
            let error = Redlock::builder().embedded().prefix(&prefix).build().await;
            match error {
                Err(BuildError::ReservedPrefix { name: reserved }) => assert_eq!(reserved, name),
                outcome => panic!("{prefix}: {outcome:?}"),
            }
        }
    }
    let redlock = Redlock::builder().embedded().prefix("redlock:").build();
    let redlock = redlock.await.unwrap();
    assert!(redlock.lock("k").await.is_ok());
    assert!(redlock.lock("owner:k").await.is_err());
}

/// Without a prefix, the client does not ask at connect which keys it may use.
#[tokio::test]
async fn a_fenced_lock_without_a_right_to_its_counter_names_the_counter() {
    let (_servers, url) = rights_to_keys(&["~order:*"]);
    let redlock = trusting([&url]).build().await.unwrap();
    drop(redlock.lock("order:1").await.expect("without a fence"));
    let outcome = redlock.lock("order:2").fenced(true).wait(MS(0)).await;
    let error = assert_refused!(outcome, LockError::NoQuorum(_));
    assert_says(&error, "redlock:fence:{order:2}");
    assert_says(&error, "grant the key pattern redlock:fence:*");
}
