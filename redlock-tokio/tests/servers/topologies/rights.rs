//! The lines of `DEPLOYMENTS.md` that create users are enough for all features, and no server notes in `ACL LOG` that
//! it refused something.

use redlock_kit::{RedisServer, Sentinels};
use redlock_tokio::{Redlock, RedlockBuilder};

use super::ready;
use crate::support::{
    Cli, MS,
    acl::{PREFIX, USER, assert_quiet, create_user, use_everything},
    shards::{cluster, slot, strict, url},
};

/// Makes two clients that keep all rules.
async fn clients(builder: impl Fn() -> RedlockBuilder) -> [Redlock; 2] {
    let builder = || builder().prefix(PREFIX).ttl(MS(3000));
    let build = || ready(builder().confirmation_window(MS(1000)));
    [build().await, build().await]
}

fn clis<'a>(servers: impl Iterator<Item = &'a RedisServer>) -> Vec<Cli> {
    servers.map(Cli::of).collect()
}

#[tokio::test]
async fn the_lines_for_sentinels_and_their_servers_leave_nothing_in_the_log() {
    let group = Sentinels::builder().replicas(1).spawn().unwrap();
    let servers = clis((0..group.server_count()).map(|it| group.server(it)));
    let sentinels = clis((0..group.sentinel_count()).map(|it| group.sentinel(it)));
    for server in &servers {
        create_user(server, "~lock:*");
    }
    for sentinel in &sentinels {
        create_user(sentinel, "+sentinel|master");
    }
    let url = group.url().replace("://", &format!("://{USER}"));
    let url = url + "?sentinel_user=locker&sentinel_password=secret";
    let builder = || Redlock::builder().nodes([&url]).node_timeout(MS(500));
    let clients = clients(builder).await;
    let master = group.master().expect("there is a master");
    use_everything(&servers[master], &clients).await;
    let names = servers[master].run(&["KEYS", "redlock:*"]);
    assert!(
        names.contains("redlock:fence:"),
        "the counter was needed: {names}"
    );
    for cli in servers.iter().chain(&sentinels) {
        assert_quiet(cli);
    }
}

#[tokio::test]
async fn the_line_for_a_cluster_leaves_nothing_in_the_log() {
    let cluster = cluster().spawn().unwrap();
    let nodes = clis((0..cluster.node_count()).map(|it| cluster.node(it)));
    for node in &nodes {
        create_user(node, "+cluster|nodes");
    }
    let url = url(&cluster).replace("://", &format!("://{USER}"));
    let clients = clients(|| strict(&url)).await;
    let owner = cluster.owner_of(slot(0)).expect("the slot has an owner");
    use_everything(&nodes[owner], &clients).await;
    for node in &nodes {
        assert_quiet(node);
    }
}
