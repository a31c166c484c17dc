//! Addresses that lead to two authorities, and authorities whose epochs begin anew.

use std::time::{Duration, Instant};

use redlock_kit::{Proxy, RedisServers, Sentinels};
use redlock_tokio::{BuildError, LockOptions};

use super::ready;
use crate::support::{
    Cli, MS, built, eventually,
    log::Log,
    shards::{cluster, strict, trusting, url, url_of},
    states::{all_vote, votes},
};

const SECOND: Duration = Duration::from_secs(1);

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long that a busy machine starts a client in a part of it.
const TTL: Duration = Duration::from_secs(6);

/// An address of the cluster comes to lead to a larger cluster. The client must not go there, even if its own cluster
/// is down.
#[tokio::test]
async fn a_client_never_moves_to_another_cluster() {
    let (log, _logging) = Log::start();
    let own = cluster().replicas(0).full_coverage(false).spawn().unwrap();
    let other = cluster().spawn().unwrap();
    let seed = Proxy::spawn(own.node(0).address()).unwrap();
    let seeds = [own.urls()[1].clone(), seed.url()];
    let redlock = built(trusting(&url_of(&seeds))).await;
    all_vote(&redlock).await;

    own.node(0).kill();
    seed.reroute_all(other.node(0).address()).unwrap();
    eventually("nobody votes", || (0..3).all(|it| !votes(&redlock, it))).await;
    assert!(log.count("two authorities") > 0, "{}", log.text());
    seed.refuse();
    let other_two_vote = || votes(&redlock, 1) && votes(&redlock, 2);
    eventually("its own cluster votes again", other_two_vote).await;
    drop(redlock.lock("k").await.unwrap());

    seed.accept();
    for node in 1..own.node_count() {
        own.node(node).kill();
    }
    tokio::time::sleep(5 * SECOND).await;
    let error = redlock.try_lock("k").await;
    assert!(error.is_err(), "its own cluster is down");
    let theirs = built(trusting(&url(&other))).await;
    all_vote(&theirs).await;
    drop(theirs.lock("k").await.unwrap());
}

/// A client is refused if one or two of its three addresses, in any place, lead to the other cluster. The error names a
/// member of each.
#[tokio::test]
async fn clusters_are_not_taken_for_one_another_in_whatever_order_their_nodes_answer() {
    let clusters = [(); 2].map(|()| cluster().replicas(0).spawn().unwrap());
    let clusters = clusters
        .each_ref()
        .map(|it| [0, 1, 2].map(|node| it.proxy(node)));
    for (odd, pair) in [(0, 1), (1, 0)] {
        for place in 0..3 {
            let mut list = clusters[pair][..2].to_vec();
            list.insert(place, clusters[odd][0]);
            // Each answers later than the one before it.
            for (place, proxy) in (0..).zip(&list) {
                proxy.replies().delay(place * MS(10));
            }
            let seeds: Vec<_> = list.iter().map(|it| it.url()).collect();
            // On a busy machine, an address may answer so late that it counts as silent.
            let mut others = 0..2;
            let error = loop {
                // Longer than all answers take.
                let client = trusting(&url_of(&seeds)).connect_timeout(2 * SECOND);
                match client.build().await {
                    Err(error @ BuildError::Refused { .. }) => break error.to_string(),
                    outcome => assert!(others.next().is_some(), "{outcome:?}"),
                }
            };
            let (_, named) = error.split_once("two authorities: ").expect("they are two");
            let is_named = |it: &&Proxy| named.contains(&it.address().to_string());
            for members in clusters {
                assert!(members.iter().any(is_named), "{error}");
            }
        }
    }
}

/// Lets all sentinels forget the group and watch this server under its name. The epoch begins anew.
fn monitor(group: &Sentinels, host: &str, port: u16) {
    for sentinel in 0..group.sentinel_count() {
        let cli = Cli::of(group.sentinel(sentinel));
        assert_eq!(cli.run(&["SENTINEL", "REMOVE", Sentinels::NAME]), "OK");
        let port = port.to_string();
        let monitor = ["SENTINEL", "MONITOR", Sentinels::NAME, host, &port, "2"];
        assert_eq!(cli.run(&monitor), "OK");
    }
}

#[tokio::test]
async fn a_server_that_is_watched_again_in_the_same_epoch_waits() {
    let group = Sentinels::builder().replicas(0).spawn().unwrap();
    // The sentinels connect from loopback addresses of their own.
    let second = RedisServers::spawn_with(1, &["--protected-mode", "no"]).unwrap();
    let first = group.server_proxy(0).address();
    let builder = || {
        let builder = strict(&group.url()).ttl(TTL);
        builder.confirmation_window(SECOND)
    };
    let (holder, connected) = (ready(builder()).await, ready(builder()).await);

    let second = second.get(0).address();
    monitor(&group, &second.ip().to_string(), second.port());
    let cli = Cli::at(second.port());
    let deadline = Instant::now() + PATIENCE;
    let guard = loop {
        let once = LockOptions::new().no_renewal();
        let guard = holder.lock("k").wait(PATIENCE).options(once).await.unwrap();
        if cli.get("k").is_some() {
            break guard;
        }
        assert!(Instant::now() < deadline, "the second server never votes");
        guard.release().await;
        tokio::time::sleep(MS(50)).await;
    };
    monitor(&group, &first.ip().to_string(), first.port());

    let newcomer = built(builder()).await;
    for (name, client) in [("connected", connected), ("newcomer", newcomer)] {
        let theirs = client.lock("k").wait(PATIENCE).await.unwrap();
        assert!(!guard.is_valid(), "{name}: two clients hold the lock");
        theirs.release().await;
    }
}
