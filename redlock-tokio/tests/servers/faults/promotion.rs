//! The fault matrix, rows 40 and 41: a replica is promoted behind an address that stays the same.

use std::time::{Duration, Instant};

use redlock_kit::{Proxy, RedisServer, RedisServers};
use redlock_tokio::{Durability, LockError, LossReason, NodeState, Redlock, RedlockBuilder};

use crate::support::{
    Cli, MS,
    acl::limited,
    built, eventually,
    states::{all_vote, is_quarantined, state, votes},
    unrenewed,
};

/// The longest ttl, which is about the time for which a promoted server has no vote.
const MAX_TTL: Duration = Duration::from_secs(3);

/// Longer than an answer takes on a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time within which a client notices that the server changed. It asks once a second.
const SEEN_WITHIN: Duration = Duration::from_secs(3);

/// An hour in milliseconds. A marker lives for a day.
const HOUR: i64 = 3_600_000;

/// A master and its replica behind one address, and other masters with addresses of their own.
struct Endpoint {
    servers: RedisServers,
    /// The address for the clients. At first it leads to the master, server 0.
    front: Proxy,
    /// The address through which the replica, server 1, follows its master.
    link: Proxy,
}

impl Endpoint {
    /// Starts the servers, waits until the replica follows its master, and until all servers are up for
    /// longer than a quarantine.
    async fn new(others: usize) -> Self {
        let servers = RedisServers::spawn(2 + others).unwrap();
        let front = Proxy::spawn(servers.get(0).address()).unwrap();
        let link = Proxy::spawn(servers.get(0).address()).unwrap();
        let endpoint = Self {
            servers,
            front,
            link,
        };
        endpoint.follow(1, &endpoint.link);
        let is_up = |server: &RedisServer| {
            let uptime: u64 = info(server, "server", "uptime_in_seconds").parse().unwrap();
            Duration::from_secs(uptime) > MAX_TTL + MS(1500)
        };
        let are_up = || endpoint.servers.iter().all(is_up);
        eventually("no server is in quarantine", are_up).await;
        endpoint
    }

    fn master(&self) -> &RedisServer {
        self.servers.get(0)
    }

    fn replica(&self) -> &RedisServer {
        self.servers.get(1)
    }

    /// Makes a server follow the master behind a proxy, and waits until it does.
    fn follow(&self, index: usize, link: &Proxy) {
        let server = self.servers.get(index);
        let (host, port) = ("127.0.0.1", link.address().port().to_string());
        assert_eq!(Cli::of(server).run(&["REPLICAOF", host, &port]), "OK");
        let deadline = Instant::now() + Duration::from_secs(20);
        while info(server, "replication", "master_link_status") != "up" {
            assert!(Instant::now() < deadline, "it does not follow");
            std::thread::sleep(MS(20));
        }
    }

    /// Cuts the link to the replica, which lags behind from then on.
    fn lag(&self) {
        self.link.refuse();
        self.link.reset();
    }

    /// Promotes the replica, and routes new connections to it.
    fn promote(&self) {
        promote(self.replica());
        self.front.reroute(self.replica().address()).unwrap();
        self.front.reset();
    }

    /// Returns a client of the replica, and the name of its marker.
    fn marker(&self) -> (Cli, String) {
        let history = info(self.replica(), "replication", "master_replid");
        (Cli::of(self.replica()), format!("redlock:since:{history}"))
    }

    fn builder(&self) -> RedlockBuilder {
        let others = self.servers.iter().skip(2).map(RedisServer::url);
        Redlock::builder()
            .nodes([self.front.url()].into_iter().chain(others))
            .ttl(MAX_TTL)
            .node_timeout(NODE_TIMEOUT)
    }

    /// Connects a client, and waits until all nodes may vote.
    async fn client(&self) -> Redlock {
        let redlock = built(self.builder()).await;
        all_vote(&redlock).await;
        redlock
    }
}

fn promote(server: &RedisServer) {
    assert_eq!(Cli::of(server).run(&["REPLICAOF", "NO", "ONE"]), "OK");
}

/// Reads a field of `INFO`.
fn info(server: &RedisServer, section: &str, field: &str) -> String {
    let text = Cli::of(server).run(&["INFO", section]);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

fn is_without_a_vote(error: &LockError) -> bool {
    use LockError::{NoQuorum, Quarantined};
    matches!(error, Quarantined { .. } | NoQuorum(_))
}

#[tokio::test]
async fn row_40_a_first_time_client_waits_out_what_a_promoted_replica_may_lack() {
    let endpoint = Endpoint::new(0).await;
    let holder = endpoint.client().await;
    endpoint.lag();
    let guard = unrenewed(holder.lock("k")).await;
    assert!(Cli::of(endpoint.master()).get("k").is_some());
    endpoint.promote();
    let key = Cli::of(endpoint.replica()).get("k");
    assert_eq!(key, None, "it lacks the key");
    let second = info(endpoint.replica(), "replication", "master_replid2");
    assert_ne!(second, "0".repeat(40), "the promotion shows");

    let other = built(endpoint.builder()).await;
    let outcome = other.try_lock("k").await;
    assert!(guard.is_valid(), "there is a lock to protect");
    let error = outcome.expect_err("two clients hold the lock");
    assert!(is_without_a_vote(&error), "{error}");
    let second = other.lock("k").wait(MS(8000)).await.expect("in the end");
    assert!(!guard.is_valid(), "only after the first");
    drop(second);
}

#[tokio::test]
async fn row_40_a_client_that_trusts_the_replica_at_once_is_a_second_holder() {
    let endpoint = Endpoint::new(0).await;
    let holder = endpoint.client().await;
    endpoint.lag();
    let guard = unrenewed(holder.lock("k")).await;
    endpoint.promote();
    let gullible = endpoint.builder().durability(Durability::AssumedForTests);
    let gullible = built(gullible).await;
    let second = gullible.try_lock("k").await.unwrap();
    assert!(guard.is_valid() && second.is_valid(), "two holders");
    let markers = Cli::of(endpoint.replica()).run(&["KEYS", "redlock:since:*"]);
    assert_eq!(markers, "", "it does not need the age");
}

#[tokio::test]
async fn row_41_a_client_whose_connection_moves_to_the_replica_gives_up_the_lock() {
    let endpoint = Endpoint::new(0).await;
    let holder = endpoint.client().await;
    let other = endpoint.client().await;
    endpoint.lag();
    let guard = unrenewed(holder.lock("k")).await;
    promote(endpoint.replica());
    // For up to a second the client takes the votes for those of the server that it knew. If it inspects the
    // server too early, it notices the change before the lock. Then the address moves to the other server. The quarantine
    // can end just before an inspection each time, so each move waits for longer than the last: nine cover a second.
    let servers = [endpoint.replica(), endpoint.master()];
    let mut moves = servers.into_iter().cycle().zip(0..9);
    let (second, server) = loop {
        let (server, moved) = moves.next().expect("a move comes after an inspection");
        tokio::time::sleep(MS(130) * moved).await;
        endpoint.front.reroute_all(server.address()).unwrap();
        if let Ok(second) = other.try_lock("other").await {
            break (second, server);
        }
        all_vote(&other).await;
    };
    let lost = tokio::time::timeout(SEEN_WITHIN, second.lost()).await;
    assert_eq!(lost.ok(), Some(LossReason::VotesWithdrawn));
    assert!(is_quarantined(&other, 0));
    let gone = || Cli::of(server).get("other").is_none();
    eventually("its key is released", gone).await;
    let error = other.try_lock("k").await.expect_err("it has no vote");
    assert!(is_without_a_vote(&error), "{error}");
    drop(guard);
    all_vote(&other).await;
}

#[tokio::test]
async fn row_41_the_lock_stays_valid_by_the_votes_of_other_nodes() {
    let endpoint = Endpoint::new(4).await;
    let holder = endpoint.client().await;
    endpoint.lag();
    promote(endpoint.replica());
    let replica = endpoint.replica().address();
    endpoint.front.reroute_all(replica).unwrap();
    let guard = holder.lock("k").await.unwrap();
    let is_noticed = || is_quarantined(&holder, 0);
    eventually("the promotion is noticed", is_noticed).await;
    assert!(guard.is_valid(), "by the votes of the four others");
    guard.extend().await.expect("the four others extend it");
}

#[tokio::test]
async fn a_promoted_node_votes_at_once_if_its_marker_is_old_enough() {
    let endpoint = Endpoint::new(0).await;
    endpoint.promote();
    let first = built(endpoint.builder()).await;
    // The promotion has an unknown age.
    assert!(is_quarantined(&first, 0));
    let (cli, marker) = endpoint.marker();
    assert_eq!(cli.get(&marker).as_deref(), Some("0"));
    let (left, day) = (cli.pttl(&marker), 24 * HOUR);
    assert!((day - 100_000..=day).contains(&left), "{left}");
    // A second client waits for the rest of the quarantine, and not for a new one.
    tokio::time::sleep(MS(1000)).await;
    let soon = built(endpoint.builder()).await;
    if let NodeState::Quarantined { remaining } = state(&soon, 0) {
        assert!(remaining < MAX_TTL - MS(800), "{remaining:?}");
    } // On a very slow machine the quarantine is over by now.

    all_vote(&first).await;
    let second = built(endpoint.builder()).await;
    assert!(votes(&second, 0), "by the marker");
    drop(second.try_lock("k").await.expect("it votes"));
}

#[tokio::test]
async fn a_marker_is_read_from_a_server_that_refuses_to_write() {
    let endpoint = Endpoint::new(0).await;
    endpoint.promote();
    let (cli, marker) = endpoint.marker();
    let day = (24 * HOUR).to_string();
    assert_eq!(cli.run(&["SET", &marker, &day, "PX", &day]), "OK");
    let needs = |count| cli.configure("min-replicas-to-write", count);
    needs("1");
    assert!(cli.run(&["SET", "k", "1"]).starts_with("NOREPLICAS"));
    let client = built(endpoint.builder()).await;
    assert!(!is_quarantined(&client, 0), "{:?}", client.nodes());
    needs("0");
    drop(client.lock("k").await.expect("it votes"));
}

#[tokio::test]
async fn a_master_that_was_a_replica_for_a_while_has_no_vote() {
    let endpoint = Endpoint::new(0).await;
    let client = endpoint.client().await;
    let guard = client.lock("k").await.unwrap();
    // The master becomes a replica of its replica, and a master again.
    promote(endpoint.replica());
    let back = Proxy::spawn(endpoint.replica().address()).unwrap();
    endpoint.follow(0, &back);
    promote(endpoint.master());
    eventually("the client notices it", || !votes(&client, 0)).await;
    drop(guard);
    let other = built(endpoint.builder()).await;
    let error = other.try_lock("k").await.expect_err("it has no vote");
    assert!(is_without_a_vote(&error), "{error}");
    all_vote(&other).await;
}

#[tokio::test]
async fn without_the_right_to_the_marker_a_promoted_node_waits() {
    let endpoint = Endpoint::new(0).await;
    endpoint.promote();
    limited(endpoint.replica(), "~locks:* +@all");
    let url = endpoint.front.url().replace("://", "://locker:pw@");
    let over = || Redlock::builder().nodes([&url]).ttl(MAX_TTL);
    let build = async || built(over().prefix("locks:").node_timeout(NODE_TIMEOUT)).await;
    let client = build().await;
    assert!(is_quarantined(&client, 0), "{:?}", client.nodes());
    all_vote(&client).await;
    drop(client.lock("k").await.expect("the quarantine is over"));
    let next = build().await;
    assert!(is_quarantined(&next, 0), "each client waits anew");
}
