//! The commands that a lock costs, as the servers count them. `make servers` runs these tests on Valkey too,
//! which compares values without scripts.

use futures::future::join_all;
use redlock_tokio::{ReleaseOutcome, test_util::RedisServers};

use crate::support::{Cli, MS, eventually, trusting};

/// How often a server has carried out, or refused, each command since its start.
struct Counts(String);

impl Counts {
    fn of(server: &Cli) -> Self {
        Self(server.run(&["INFO", "commandstats"]))
    }

    fn calls(&self, command: &str) -> u64 {
        self.field(command, "calls=")
    }

    fn rejected(&self, command: &str) -> u64 {
        self.field(command, "rejected_calls=")
    }

    fn field(&self, command: &str, name: &str) -> u64 {
        let prefix = format!("cmdstat_{command}:");
        let line = self.0.lines().find_map(|line| line.strip_prefix(&prefix));
        let fields = line.unwrap_or_default().trim().split(',');
        let value = fields
            .into_iter()
            .find_map(|field| field.strip_prefix(name));
        value.map_or(0, |value| value.parse().expect("a number"))
    }
}

/// Returns the command with which this server deletes a key of a given value, if it has one.
fn native_release(server: &Cli) -> Option<&'static str> {
    ["delex", "delifeq"]
        .into_iter()
        .find(|command| !server.run(&["COMMAND", "INFO", command]).trim().is_empty())
}

#[tokio::test]
async fn keys_are_compared_by_the_server_where_it_can_and_by_script_elsewhere() {
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = servers.builder().build().await.unwrap();
    for _ in 0..10 {
        let guard = redlock.lock("k").await.unwrap();
        guard.extend().await.unwrap();
        guard.release().await;
    }
    let server = Cli::of(servers.get(0));
    eventually("every node has seen everything", || {
        server.run(&["DBSIZE"]) == "0" && Counts::of(&server).calls("set") >= 10
    })
    .await;
    let counts = Counts::of(&server);
    match native_release(&server) {
        Some(command) => {
            assert_eq!(counts.calls("set"), 20, "an extension is a SET .. IFEQ");
            assert_eq!(counts.calls(command), 10);
            assert_eq!(counts.calls("evalsha"), 0);
        }
        None => {
            assert_eq!(counts.calls("set"), 10);
            assert_eq!(counts.calls("evalsha"), 20);
        }
    }
}

#[tokio::test]
async fn a_user_without_the_native_commands_compares_by_script() {
    let servers = RedisServers::spawn(1).unwrap();
    let admin = Cli::of(servers.get(0));
    let rights = [
        "+info",
        "+set",
        "+mget",
        "+del",
        "+pttl",
        "+pexpire",
        "+eval",
        "+evalsha",
        "+script|load",
        "+command|info",
    ];
    let user = ["ACL", "SETUSER", "locker", "on", ">hunter2", "~*", "-@all"];
    assert_eq!(admin.run(&[&user[..], &rights].concat()), "OK");
    let url = format!("redis://locker:hunter2@127.0.0.1:{}", servers.get(0).port());
    let redlock = trusting([url]).build().await.unwrap();
    for _ in 0..3 {
        let guard = redlock.lock("k").await.unwrap();
        let report = guard.release().await;
        assert_eq!(report.outcome, ReleaseOutcome::Released);
        assert_eq!(admin.get("k"), None);
    }
    if let Some(command) = native_release(&admin) {
        let counts = Counts::of(&admin);
        // The client asks about each command once, when it connects. Without MULTI the server carries the questions
        // out and counts them.
        assert_eq!(counts.rejected(command), 1, "one attempt");
        let (asked, releases) = (1, 3);
        assert_eq!(counts.calls("eval"), asked);
        assert_eq!(counts.calls("evalsha"), asked + releases);
    }
}

#[tokio::test]
async fn releases_that_are_due_together_share_a_script() {
    const LOCKS: u64 = 100;
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = servers.builder().build().await.unwrap();
    let guards = join_all((0..LOCKS).map(|number| redlock.try_lock(format!("k{number}")))).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    join_all(guards.iter().map(|guard| guard.extend())).await;
    let server = Cli::of(servers.get(0));
    assert_eq!(server.run(&["DBSIZE"]), LOCKS.to_string());
    join_all(guards.into_iter().map(|guard| guard.release())).await;
    assert_eq!(server.run(&["DBSIZE"]), "0");
    if native_release(&server).is_none() {
        let scripts = Counts::of(&server).calls("evalsha");
        assert!((2..=LOCKS / 5).contains(&scripts), "{scripts} scripts");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_not_ours_and_does_not_disturb_others() {
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = servers.builder().build().await.unwrap();
    let guards = join_all(["a", "b", "c"].map(|key| redlock.try_lock(key))).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    let server = Cli::of(servers.get(0));
    assert_eq!(server.run(&["DEL", "b"]), "1");
    assert_eq!(server.run(&["LPUSH", "b", "foreign"]), "1");
    // The keys share a script on a server that needs one. A key of another type must not fail the others.
    let extended = join_all(guards.iter().map(|guard| guard.extend())).await;
    let extended: Vec<bool> = extended.iter().map(Result::is_ok).collect();
    assert_eq!(extended, [true, false, true]);
    drop(guards);
    eventually("ours are released", || server.run(&["DBSIZE"]) == "1").await;
    assert_eq!(server.run(&["LRANGE", "b", "0", "-1"]), "foreign");
    let report = redlock.shutdown().await;
    assert_eq!(report.abandoned, 0, "nothing is owed for it");
}

/// A user who may only use some keys gets an error for any other key, and all else works.
#[tokio::test]
async fn a_forbidden_key_does_not_disturb_others() {
    let servers = RedisServers::spawn(1).unwrap();
    let admin = Cli::of(servers.get(0));
    let rights = ["ACL", "SETUSER", "u", "on", ">p", "~app:*", "+@all"];
    assert_eq!(admin.run(&rights), "OK");
    let url = format!("redis://u:p@127.0.0.1:{}", servers.get(0).port());
    let patient = trusting([url]).node_timeout(MS(2000));
    let redlock = patient.build().await.unwrap();
    for round in 0..20 {
        let allowed = join_all((0..5).map(|it| redlock.try_lock(format!("app:{round}:{it}"))));
        let forbidden = join_all((0..5).map(|it| redlock.try_lock(format!("other:{round}:{it}"))));
        let (allowed, forbidden) = futures::join!(allowed, forbidden);
        assert!(forbidden.iter().all(Result::is_err));
        let guards: Vec<_> = allowed.into_iter().map(Result::unwrap).collect();
        let extended = join_all(guards.iter().map(|guard| guard.extend())).await;
        assert!(extended.iter().all(Result::is_ok), "{extended:?}");
        for report in join_all(guards.into_iter().map(|guard| guard.release())).await {
            assert_eq!(report.outcome, ReleaseOutcome::Released, "{}", report.nodes);
        }
    }
    assert_eq!(admin.run(&["DBSIZE"]), "0");
    if let Some(command) = native_release(&admin) {
        assert!(
            Counts::of(&admin).calls(command) >= 100,
            "the native command is still used"
        );
    }
}

#[tokio::test]
async fn row_21_a_held_lock_is_kept_and_released_where_memory_is_full() {
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = servers.builder().build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    let server = Cli::of(servers.get(0));
    assert_eq!(server.run(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    let error = redlock.try_lock("other").await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    guard.extend().await.expect("an extension needs no memory");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}
