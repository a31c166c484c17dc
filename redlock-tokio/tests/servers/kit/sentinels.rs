//! The test kit's Sentinel groups: they fail over, and their networks part.

use std::time::Duration;

use redlock_kit::{Proxy, RedisServer, Sentinels};

use crate::support::{Cli, eventually};

/// The command line of a client that reaches a server through its proxy.
fn client(group: &Sentinels, server: usize) -> Cli {
    Cli::at(group.server_proxy(server).address().port())
}

#[tokio::test]
async fn a_forced_failover_moves_the_data() {
    let group = Sentinels::spawn().unwrap();
    assert_eq!(group.master(), Some(0));
    client(&group, 0).set("k", "v");

    let promoted = group.fail_over().unwrap();
    assert_ne!(promoted, 0);
    assert_eq!(client(&group, promoted).get("k").as_deref(), Some("v"));
    client(&group, promoted).set("k", "w");
    assert_eq!(group.settle().unwrap(), promoted);
    let has_followed = || client(&group, 0).get("k").as_deref() == Some("w");
    eventually("the old master follows the new one", has_followed).await;

    // A failback works as well.
    let again = group.fail_over().unwrap();
    assert_ne!(again, promoted);
    assert_eq!(client(&group, again).get("k").as_deref(), Some("w"));
}

#[tokio::test]
async fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let group = Sentinels::builder()
        .replicas(1)
        .down_after(Duration::from_secs(3)) // so that a busy master is not replaced as well
        .spawn()
        .unwrap();
    group.sentinel(2).kill();
    group.server(0).kill();
    assert_eq!(group.wait_for_other_master(0).unwrap(), 1);

    group.server(0).restart().unwrap();
    group.sentinel(2).restart().unwrap();
    assert_eq!(group.settle().unwrap(), 1);
}

#[tokio::test]
async fn clients_write_on_both_sides_of_a_partition() {
    let group = Sentinels::builder()
        .down_after(Duration::from_secs(1))
        .spawn()
        .unwrap();
    client(&group, 0).set("k", "before");
    group.cut_off(&[0], &[0]);
    let promoted = group.wait_for_other_master(0).unwrap();

    client(&group, 0).set("k", "old side");
    client(&group, promoted).set("k", "new side");
    assert_eq!(client(&group, 0).get("k").as_deref(), Some("old side"));
    let lone = group.sentinel_proxy(0).address().port();
    let named = Cli::at(lone).run(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", group.name()]);
    let old_port = group.server_proxy(0).address().port().to_string();
    assert!(
        named.contains(&old_port),
        "the lone sentinel has not noticed: {named}"
    );

    group.heal();
    assert_eq!(group.settle().unwrap(), promoted);
    assert_eq!(client(&group, 0).get("k").as_deref(), Some("new side"));
}

#[tokio::test]
async fn a_minority_of_sentinels_replaces_no_master() {
    let group = Sentinels::builder()
        .down_after(Duration::from_secs(1))
        .spawn()
        .unwrap();
    group.sentinel(0).freeze();
    group.sentinel(1).kill();
    assert_eq!(group.master(), None, "one of three is no majority");
    group.sentinel(0).thaw();
    assert_eq!(group.master(), Some(0));
}

#[tokio::test]
async fn passwords_and_names_are_those_that_a_test_sets() {
    let group = Sentinels::builder()
        .name("orders")
        .replicas(1)
        .sentinels(1)
        .password("p:ss")
        .sentinel_password("secret")
        .spawn()
        .unwrap();
    let port = group.sentinel_proxy(0).address().port();
    let url = format!("redis+sentinel://:p%3Ass@127.0.0.1:{port}/orders?sentinel_password=secret");
    assert_eq!(group.url(), url);
    assert!(
        Cli::at(port)
            .run(&["SENTINEL", "MASTERS"])
            .contains("NOAUTH")
    );
    assert_eq!(group.fail_over().unwrap(), 1);
}

#[tokio::test]
async fn faults_of_a_proxy_affect_only_clients() {
    let group = Sentinels::builder()
        .down_after(Duration::from_secs(1))
        .spawn()
        .unwrap();
    let proxy = group.server_proxy(0);
    proxy.refuse();
    proxy.reset();
    let unreachable = client(&group, 0).run(&["PING"]);
    assert_ne!(unreachable, "PONG");
    Cli::of(group.server(0)).set("k", "v");
    for replica in 1..3 {
        let has_it = || client(&group, replica).get("k").as_deref() == Some("v");
        eventually("replicas follow", has_it).await;
    }
    Proxy::heal(proxy);
    assert_eq!(client(&group, 0).run(&["PING"]), "PONG");
    assert_eq!(group.master(), Some(0));
}

#[tokio::test]
async fn no_process_outlives_its_group() {
    let group = Sentinels::spawn().unwrap();
    let servers = (0..group.server_count()).map(|it| group.server(it));
    let sentinels = (0..group.sentinel_count()).map(|it| group.sentinel(it));
    let pids: Vec<_> = servers.chain(sentinels).map(RedisServer::pid).collect();
    assert_eq!(pids.len(), 6);
    drop(group);
    for pid in pids {
        assert!(!std::fs::exists(format!("/proc/{pid}")).unwrap());
    }
}
