//! The fault matrix, rows 13, 14, 17, 25, 26, 31 and a part of row 30: nodes that must not vote, or must not
//! vote yet.

use std::time::Duration;

use redlock_kit::{Proxy, RedisServers};
use redlock_tokio::{
    BuildError, Durability, ExtendError, LockError, LockGuard, Redlock, RedlockBuilder,
};

use crate::{
    fleet::clients,
    support::{
        Cli, MS,
        acl::limited,
        assert_says, built, eventually,
        states::{all_vote, is_quarantined, is_refused, state},
        trusting, unrenewed,
    },
};

/// The longest ttl, which is about the time for which a restarted node has no vote.
const MAX_TTL: Duration = Duration::from_secs(2);

/// Longer than an answer takes on a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

fn vetted(urls: &[String]) -> RedlockBuilder {
    let builder = Redlock::builder().nodes(urls).ttl(MAX_TTL);
    builder.node_timeout(NODE_TIMEOUT)
}

/// A client holds a lock on nodes 0 and 1 of three, because it cannot reach node 2. Then node 1 restarts and
/// forgets the lock.
struct Forgotten {
    servers: RedisServers,
    holder: Redlock,
    guard: LockGuard,
    _proxy: Proxy,
}

impl Forgotten {
    async fn new(durability: Durability) -> Self {
        let servers = RedisServers::spawn(3).unwrap();
        let proxy = Proxy::spawn(servers.get(2).address()).unwrap();
        let mut urls = servers.urls();
        urls[2] = proxy.url();
        let builder = vetted(&urls).durability(durability);
        let holder = built(builder.node_timeout(MS(500))).await;
        all_vote(&holder).await;
        proxy.refuse();
        proxy.reset();
        let guard = unrenewed(holder.lock("k")).await;
        assert!(Cli::of(servers.get(1)).get("k").is_some());
        servers.get(1).restart().unwrap();
        assert_eq!(Cli::of(servers.get(1)).get("k"), None, "it has forgotten");
        Self {
            servers,
            holder,
            guard,
            _proxy: proxy,
        }
    }
}

#[tokio::test]
async fn row_13_restart_keys_lost() {
    let bed = Forgotten::new(Durability::default()).await;
    let other = built(vetted(&bed.servers.urls())).await;
    let outcome = other.try_lock("k").await;
    assert_refused!(
        outcome,
        LockError::Quarantined { .. } | LockError::Contended(_)
    );
    // The control: a client that trusts the node is a second holder.
    let [gullible] = clients(&bed.servers).await;
    let second = gullible.try_lock("k").await.expect("two of three");
    assert!(bed.guard.is_valid() && second.is_valid(), "two holders");
    second.release().await;

    let guard = other.lock("k").wait(MS(8000)).await.expect("in the end");
    assert!(!bed.guard.is_valid(), "only after the first");
    drop(guard);
    drop(bed.holder);
}

#[tokio::test]
async fn row_14_restart_during_an_extend() {
    for durability in [Durability::default(), Durability::AssumedForTests] {
        let bed = Forgotten::new(durability).await;
        let restarted = bed.holder.nodes()[1].server.clone();
        // A request to set the key was under way during the restart.
        let token = bed.guard.value();
        Cli::of(bed.servers.get(1)).set("k", &token);
        let is_back = || bed.holder.nodes()[1].server != restarted;
        eventually("the holder has noticed the restart", is_back).await;
        let extended = bed.guard.extend().await;
        if durability == Durability::AssumedForTests {
            extended.expect("the control: the vote of the restarted node counts");
        } else {
            let error = assert_refused!(extended, ExtendError::NoQuorum { .. });
            assert_says(&error, "up as the master for long enough");
        }
    }
}

#[tokio::test]
async fn row_17_cold_fleet() {
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = built(vetted(&servers.urls())).await;
    let error = redlock.try_lock("k").await.unwrap_err();
    let LockError::Quarantined { remaining, .. } = &error else {
        panic!("{error}");
    };
    assert!(*remaining <= MAX_TTL + MS(1100), "{remaining:?}");
    assert_says(&error, "a majority votes in");
    for (index, node) in redlock.nodes().into_iter().enumerate() {
        assert!(is_quarantined(&redlock, index), "{node:?}");
        assert!(node.server.is_some_and(|it| it.version.contains('.')));
    }
    let guard = redlock.lock("k").wait(MS(8000)).await;
    drop(guard.expect("after a while"));
    all_vote(&redlock).await;
    assert!(redlock.nodes()[0].round_trip.is_some());
}

/// Makes a server a replica of the fourth one. Returns how it is named.
fn follow_the_last(servers: &RedisServers, index: usize) -> String {
    let master = servers.get(3).port().to_string();
    let answer = Cli::of(servers.get(index)).run(&["REPLICAOF", "127.0.0.1", &master]);
    assert_eq!(answer, "OK");
    format!("a replica of 127.0.0.1:{master}")
}

#[tokio::test]
async fn row_25_replica() {
    let servers = RedisServers::spawn(4).unwrap();
    let urls = &servers.urls()[..3];
    let redlock = built(trusting(urls)).await;

    let text = follow_the_last(&servers, 0);
    let is_named =
        |redlock: &Redlock| is_refused(redlock, 0) && state(redlock, 0).to_string().contains(&text);
    let second = built(trusting(urls)).await;
    assert!(is_named(&second), "{:?}", second.nodes());

    // A connected client notices the replica when the node refuses a command.
    redlock.lock("k").await.unwrap().release().await;
    eventually("the replica is named", || is_named(&redlock)).await;
    follow_the_last(&servers, 1);
    let error = trusting(urls).build().await.unwrap_err();
    assert_says(&error, &text);
    let BuildError::Refused { nodes, .. } = &error else {
        panic!("{error}");
    };
    let named = nodes.iter().map(|it| it.address.to_string());
    assert!(named.eq([0, 1].map(|it| servers.get(it).address().to_string())));
    let outcome = redlock.lock("k").wait(MS(300)).await;
    assert_refused!(outcome, LockError::NoQuorum(_));
}

#[tokio::test]
async fn row_26_promotion() {
    let servers = RedisServers::spawn(4).unwrap();
    let urls = &servers.urls()[..3];
    let redlock = built(vetted(urls)).await;
    all_vote(&redlock).await;
    follow_the_last(&servers, 0);
    redlock.lock("k").await.unwrap().release().await;
    eventually("the replica is refused", || is_refused(&redlock, 0)).await;

    // The node is up for long enough, but it may lack our keys.
    let node = Cli::of(servers.get(0));
    assert_eq!(node.run(&["REPLICAOF", "NO", "ONE"]), "OK");
    let has_no_vote = || is_quarantined(&redlock, 0);
    eventually("it has no vote at first", has_no_vote).await;
    all_vote(&redlock).await;
}

#[tokio::test]
async fn row_30_no_right_to_ask_what_it_is() {
    let servers = RedisServers::spawn(1).unwrap();
    let url = limited(servers.get(0), "~* &* +@all -info");
    let error = trusting([&url]).build().await.unwrap_err();
    assert_says(&error, "NOPERM");
    assert_says(&error, "grant +info");
    let redlock = built(Redlock::builder().nodes([&url]).allow_unvetted_nodes()).await;
    drop(redlock.lock("k").await.expect("it is trusted"));
    assert_eq!(redlock.nodes()[0].server, None);
}

#[tokio::test]
async fn row_31_cluster_node_and_duplicate_address() {
    let servers = RedisServers::spawn(2).unwrap();
    let port = servers.get(0).port();
    for other in [format!("localhost:{port}"), format!("127.0.0.1:{port}/1")] {
        let urls = [
            format!("redis://127.0.0.1:{port}"),
            servers.get(1).url(),
            format!("redis://{other}"),
        ];
        let outcome = trusting(urls).build().await;
        let same =
            assert_refused!(outcome, BuildError::SameServer { first, second } => [first, second]);
        assert_eq!(
            same.map(|it| it.to_string()),
            [format!("127.0.0.1:{port}"), other]
        );
    }

    // The port of the cluster bus is the server's port plus 10 000, which may exceed the largest port. Redis before
    // 7.0 has no option for another port.
    let arguments = ["--cluster-enabled", "yes"];
    let cluster = (0..50).find_map(|_| RedisServers::spawn_with(1, &arguments).ok());
    let cluster = cluster.expect("most ports are small enough");
    let error = cluster.builder().build().await.unwrap_err();
    assert_says(&error, "a node of a cluster");
}
