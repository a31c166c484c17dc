//! The commands that a lock costs, as the servers count them.

use futures::future::join_all;
use redlock_kit::RedisServers;
use redlock_tokio::ReleaseOutcome;

use crate::{
    fleet::fleet,
    support::{Cli, MS, acl::limited, assert_says, built, eventually, trusting},
};

#[tokio::test]
async fn a_lock_is_one_set_and_a_release_or_an_extension_one_script() {
    // One server: of several, the last may still be connected to, and gets the first lock by a repair.
    let (servers, [redlock]) = fleet(1).await;
    for round in 0..10 {
        // A key of its own: after 30 ms of turns of this process, the node of the line is asked whether others wait.
        let guard = redlock.lock(format!("k{round}")).await.unwrap();
        guard.extend().await.unwrap();
        guard.release().await;
    }
    let server = Cli::of(servers.get(0));
    eventually("every node has seen everything", || {
        server.run(&["DBSIZE"]) == "0" && server.calls("set") >= 10
    })
    .await;
    assert_eq!(server.calls("set"), 10);
    assert_eq!(server.calls("evalsha"), 20);
}

/// A user who may only use some keys gets an error for any other key, and all else works.
#[tokio::test]
async fn a_forbidden_key_does_not_disturb_others() {
    let servers = RedisServers::spawn(1).unwrap();
    let url = limited(servers.get(0), "~app:* +@all");
    let redlock = built(trusting([url]).node_timeout(MS(2000))).await;
    for round in 0..20 {
        let allowed = join_all((0..5).map(|it| redlock.try_lock(format!("app:{round}:{it}"))));
        let forbidden = join_all((0..5).map(|it| redlock.try_lock(format!("other:{round}:{it}"))));
        let (allowed, forbidden) = tokio::join!(allowed, forbidden);
        assert!(forbidden.iter().all(Result::is_err));
        let guards: Vec<_> = allowed.into_iter().map(Result::unwrap).collect();
        let extended = join_all(guards.iter().map(|guard| guard.extend())).await;
        assert!(extended.iter().all(Result::is_ok), "{extended:?}");
        for report in join_all(guards.into_iter().map(|guard| guard.release())).await {
            assert_eq!(report.outcome, ReleaseOutcome::Released, "{}", report.nodes);
        }
    }
    assert_eq!(Cli::of(servers.get(0)).run(&["DBSIZE"]), "0");
}

#[tokio::test]
async fn row_21_a_held_lock_is_kept_and_released_where_memory_is_full() {
    let (servers, [redlock]) = fleet(1).await;
    let guard = redlock.lock("k").await.unwrap();
    let server = Cli::of(servers.get(0));
    server.configure("maxmemory", "1");
    assert_says(&redlock.try_lock("other").await.unwrap_err(), "OOM");
    guard.extend().await.expect("an extension needs no memory");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}
