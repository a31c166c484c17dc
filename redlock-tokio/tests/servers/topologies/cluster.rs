//! Locks over a real cluster, whose slots vote.

use std::{collections::BTreeSet, time::Duration};

use redlock_kit::{Cluster, Proxy, RedisServers};
use redlock_tokio::{
    BuildError, Key, LockError, LossReason, Redlock, ReleaseOutcome, errors::KeyError,
};
use tokio::time::{Instant, timeout};

use super::ready;
use crate::support::{
    Cli, MS, assert_says, built, eventually,
    log::Log,
    shards::{cluster, names, owner, owners, slot, strict, trusting, url, url_of},
    states::{all_vote, is_quarantined, state, votes},
    waiting_at,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns what the servers of the voters have under a key.
fn values(cluster: &Cluster, key: &str) -> [Option<String>; 3] {
    let names = names(key);
    [0, 1, 2].map(|voter| owner(cluster, voter).get(&names[voter]))
}

#[tokio::test]
async fn locks_of_each_kind_work_as_over_plain_masters() {
    let cluster = cluster().spawn().unwrap();
    let scene = Scene {
        redlock: built(trusting(&url(&cluster)).max_ttl(MINUTE)).await,
        other: built(trusting(&url(&cluster))).await,
        cluster,
    };
    all_vote(&scene.redlock).await;
    all_vote(&scene.other).await;
    scene
        .each_process_has_two_connections_for_each_voter()
        .await;
    scene.a_lock_is_one_key_in_the_slot_of_each_voter().await;
    scene
        .a_lock_is_freed_by_hand_with_the_tags_of_the_status()
        .await;
    scene.a_waiter_of_another_client_is_woken().await;
    scene.the_longest_key_is_shorter_by_the_tag().await;
}

/// A cluster and two clients of it.
struct Scene {
    cluster: Cluster,
    redlock: Redlock,
    other: Redlock,
}

impl Scene {
    /// One as for each node of the cluster, and one of the voter.
    async fn each_process_has_two_connections_for_each_voter(&self) {
        let connections = |voter| owner(&self.cluster, voter).connections();
        eventually("two for each of two processes, and our own", || {
            (0..3).all(|voter| connections(voter) == 5)
        })
        .await;
    }

    async fn a_lock_is_one_key_in_the_slot_of_each_voter(&self) {
        let guard = self.redlock.lock("order:1").await.unwrap();
        let key = guard.key().as_bytes();
        assert_eq!(key, b"order:1", "the tag is no part of it");
        let value = Some(guard.value());
        let all = || self.values("order:1").iter().all(|it| *it == value);
        eventually("each voter has the key", all).await;
        let servers: BTreeSet<_> = (0..3).map(|it| self.cluster.owner_of(slot(it))).collect();
        assert_eq!(servers.len(), 3, "on servers of their own");
        let refused = self.other.try_lock("order:1").await;
        assert_refused!(refused, LockError::Contended(_));
        guard.extend().await.unwrap();
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
        self.is_free("order:1").await;
    }

    async fn a_lock_is_freed_by_hand_with_the_tags_of_the_status(&self) {
        let guard = self.redlock.lock("order:7").await.unwrap();
        let all = || self.values("order:7").iter().all(Option::is_some);
        eventually("each voter has the key", all).await;
        for (voter, node) in self.redlock.nodes().iter().enumerate() {
            let (_, text) = node.address.split_once('{').unwrap();
            let (tag, _) = text.split_once('}').unwrap();
            let key = format!("{{{tag}}}order:7");
            let deleted = owner(&self.cluster, voter).run(&["DEL", &key]);
            assert_eq!(deleted, "1", "{key}");
        }
        let next = self.other.lock("order:7").await.unwrap();
        assert_eq!(guard.lost().await, LossReason::KeysLost);
        next.release().await;
    }

    async fn a_waiter_of_another_client_is_woken(&self) {
        let guard = self.redlock.lock("w").ttl(MINUTE).await.unwrap();
        // It would try again by itself after ten minutes at the earliest, or when the key may have expired.
        let seldom = self.other.lock("w").retry_delay(10 * MINUTE, 20 * MINUTE);
        let waiting = waiting_at(&owners(&self.cluster), seldom.wait(60 * MINUTE)).await;
        guard.release().await;
        let woken = timeout(MINUTE / 3, waiting).await;
        drop(woken.expect("it is woken").unwrap().unwrap());
    }

    async fn the_longest_key_is_shorter_by_the_tag(&self) {
        let tag_len = names("").iter().map(String::len).max().unwrap();
        let longest = "x".repeat(Key::MAX_LEN - tag_len);
        drop(self.redlock.lock(&longest).await.unwrap());
        self.is_free(&longest).await;
        let error = self.redlock.lock(longest + "x").await.unwrap_err();
        let len = Key::MAX_LEN + 1;
        assert!(matches!(error, LockError::InvalidKey(KeyError::TooLong { len: it }) if it == len));
    }

    fn values(&self, key: &str) -> [Option<String>; 3] {
        values(&self.cluster, key)
    }

    async fn is_free(&self, key: &str) {
        let is_free = || self.values(key).iter().all(Option::is_none);
        eventually("the key is gone", is_free).await;
    }
}

#[tokio::test]
async fn the_first_client_waits_for_the_longest_ttl_and_the_next_ones_do_not() {
    let cluster = cluster().replicas(0).spawn().unwrap();
    let ttl = Duration::from_secs(3);
    let builder = || {
        let builder = strict(&url(&cluster)).ttl(ttl);
        builder.confirmation_window(Duration::from_secs(1))
    };
    let start = Instant::now();
    let first = built(builder()).await;
    let waits = (0..3).any(|voter| is_quarantined(&first, voter));
    assert!(waits, "{:?}", first.nodes());
    first.ready(MINUTE).await.unwrap();
    assert!(start.elapsed() > ttl + Duration::from_secs(1));
    all_vote(&first).await;

    let second = built(builder()).await;
    // The marker is a moment younger than the first client's own watch.
    second.ready(ttl / 2).await.expect("it reads the marker");
    drop(second.try_lock("k").await.unwrap());
    let markers = owner(&cluster, 1).run(&["KEYS", "*redlock:owner:*"]);
    assert!(markers.starts_with("{8209}redlock:owner:"), "{markers}");
}

#[tokio::test]
async fn two_voters_on_one_server_are_refused_by_name_unless_that_is_allowed() {
    let cluster = cluster().shards(1).replicas(0).spawn().unwrap();
    let build = async |url: &str| trusting(url).build().await;
    let error = assert_refused!(build(&url(&cluster)).await, BuildError::SharedServer { .. });
    let text = error.to_string();
    let server = cluster.proxy(0).address();
    // Any two of the three are found first.
    let named = (0..3).filter(|it| text.contains(&format!("slot {} ", slot(*it))));
    assert_eq!(named.count(), 2, "{text}");
    for words in [
        &format!("are both on {server}"),
        "another server",
        "allow_shared_servers",
        "voters=1",
        "no process runs",
    ] {
        assert_says(&text, words);
    }

    let over = async |parameter: &str| built(trusting(&(url(&cluster) + parameter))).await;
    let one = over("?voters=1").await;
    drop(one.lock("k").await.unwrap());
    let (log, logging) = Log::start();
    let shared = over("?allow_shared_servers=true").await;
    all_vote(&shared).await;
    // The second and the third are each named with the first.
    assert_eq!(log.count("two voters are slots of one server"), 2);
    drop(logging);
    let guard = shared.lock("k").await.unwrap();
    assert!(values(&cluster, "k").iter().flatten().count() >= 2);
    drop(guard);
    // Explicit tags need not be numbers.
    let tagged = over("?tags=lock").await;
    let guard = tagged.lock("k").await.unwrap();
    assert!(Cli::of(cluster.node(0)).get("{lock}k").is_some());
    drop(guard);
}

#[tokio::test]
async fn voters_of_one_server_are_named_even_if_the_cluster_did_not_answer_at_the_start() {
    let three = cluster().replicas(0).spawn().unwrap();
    let one = cluster().shards(1).replicas(0).spawn().unwrap();
    let seeds = |ends: [&str; 2]| {
        let urls = [0, 1].map(|seed| url_of(&[&three.urls()[seed]]) + ends[seed]);
        urls.join(",")
    };
    for (cluster, urls, says) in [
        (
            &three,
            seeds(["", "?allow_shared_servers=true"]),
            "the same server as slot ",
        ),
        (&three, seeds(["", "?tags=a,b,c"]), "one URL only"),
        (&one, url(&one), "one URL only"),
    ] {
        let (log, _logging) = Log::start();
        let nodes = || (0..cluster.node_count()).map(|it| cluster.node(it));
        nodes().for_each(|it| it.freeze());
        let redlock = built(trusting(&urls).connect_timeout(MS(500))).await;
        nodes().for_each(|it| it.thaw());
        let mut text = String::new();
        let deadline = Instant::now() + MINUTE;
        while !text.contains(says) && Instant::now() < deadline {
            text = redlock.ready(MS(500)).await.unwrap_err().to_string();
        }
        assert_says(&text, says);
        assert_says(&log.text(), says);
        assert_says(&redlock.try_lock("k").await.unwrap_err(), says);
    }
}

#[tokio::test]
async fn servers_that_are_no_usable_cluster_are_named() {
    let refusal = async |url: &str| {
        let outcome = trusting(url).build().await;
        assert_refused!(outcome, BuildError::Refused { .. }).to_string()
    };
    let plain = RedisServers::spawn(1).unwrap();
    let text = refusal(&url_of(&plain.urls())).await;
    assert_says(&text, "not a node of a cluster");
    assert_says(&text, &plain.get(0).address().to_string());

    let cluster = cluster().replicas(0).password("p:ss").spawn().unwrap();
    assert_says(&refusal(&url(&cluster)).await, "asks for a password");
    let with = |password: &str| url(&cluster).replace("://", &format!("://:{password}@"));
    let text = refusal(&with("wrong")).await;
    assert_says(&text, "password");
    assert!(!text.contains("wrong@"), "{text}");
    let redlock = built(trusting(&with("p%3Ass"))).await;
    drop(redlock.lock("k").await.unwrap());

    let node = cluster.urls()[0].replace("redis://", "redis://:p%3Ass@");
    let error = Redlock::connect(&node).await.unwrap_err();
    assert_says(&error, "redis+cluster://");
    let error = Redlock::connect(with("p%3Ass") + "/1").await;
    assert_says(&error.unwrap_err(), "database");
}

#[tokio::test]
async fn seeds_may_be_down_and_announced_addresses_may_need_a_mapping() {
    let cluster = cluster().replicas(0).spawn().unwrap();
    // Nobody listens on the port of a server that is gone.
    let gone = RedisServers::spawn(1).unwrap().urls().remove(0);
    let (log, _logging) = Log::start();
    let redlock = built(trusting(&url_of(&[&gone, &cluster.urls()[2]]))).await;
    all_vote(&redlock).await;
    let master = cluster.owner_of(slot(0)).unwrap();
    let address = cluster.proxy(master).address().to_string();
    assert_eq!(redlock.nodes()[0].owner.as_deref(), Some(&*address));
    let named = format!("owner={address} ");
    assert!(log.text().contains(&named), "{}", log.text());
    let urls = [0, 1].map(|seed| url_of(&[&cluster.urls()[seed]]));
    let twice = trusting(&urls.join(",")).build().await;
    assert_refused!(twice, BuildError::SameServer { .. });

    // As behind a network address translation: what the nodes announce leads nowhere.
    for node in 0..3 {
        cluster.proxy(node).refuse();
        cluster.proxy(node).reset();
    }
    let seed = url_of(&[cluster.node(0).url()]);
    let lost = built(trusting(&seed).connect_timeout(MS(2000))).await;
    let error = lost.try_lock("k").await.unwrap_err();
    assert_says(&error, &cluster.proxy(1).address().to_string());

    let ports: Vec<_> = (0..3)
        .map(|node| {
            let announced = cluster.proxy(node).address().to_string();
            (announced, cluster.node(node).address().to_string())
        })
        .collect();
    let wrong = trusting(&seed).map_addresses(|_| Some("no port".into()));
    let wrong = wrong.build().await.unwrap_err();
    assert_says(&wrong, "`no port` is not host:port");
    let mapped = trusting(&seed).map_addresses(move |announced| {
        let pair = ports.iter().find(|(from, _)| from == announced);
        pair.map(|(_, to)| to.clone())
    });
    let redlock = built(mapped).await;
    all_vote(&redlock).await;
    let reached = cluster.node(master).address().to_string();
    assert_eq!(redlock.nodes()[0].owner.as_deref(), Some(&*reached));
    drop(redlock.lock("k").await.unwrap());
}

#[tokio::test]
async fn a_slot_without_an_owner_is_one_vote_less_and_is_named() {
    let cluster = cluster().replicas(0).full_coverage(false).spawn().unwrap();
    let redlock = built(trusting(&url(&cluster))).await;
    all_vote(&redlock).await;
    cluster.leave_uncovered(slot(0)).unwrap();
    eventually("its voter has no vote", || !votes(&redlock, 0)).await;
    for _ in 0..20 {
        drop(redlock.lock("k").await.unwrap());
    }
    // A client that starts now hears why.
    let newcomer = trusting(&url(&cluster)).connect_timeout(MS(3000));
    let newcomer = built(newcomer).await;
    let named = format!("no node of the cluster owns slot {}", slot(0));
    assert_says(&newcomer.nodes()[0].state, &named);
    drop(newcomer.lock("k").await.unwrap());

    cluster.cover(slot(0), 0).unwrap();
    all_vote(&redlock).await;
    all_vote(&newcomer).await;
}

#[tokio::test]
async fn a_server_that_sends_clients_elsewhere_has_no_vote_and_is_not_followed() {
    let cluster = cluster().replicas(0).spawn().unwrap();
    let redlock = built(trusting(&url(&cluster))).await;
    all_vote(&redlock).await;
    let server = owner(&cluster, 0);
    let other = Cli::of(cluster.node(1)).run(&["CLUSTER", "MYID"]);
    let number = slot(0).to_string();
    let names = names("k");
    // The server alone believes that the slot belongs to another one. It must have no keys for that, such as markers.
    for command in [
        &["FLUSHALL"][..],
        &["CLUSTER", "DELSLOTS", &number],
        &["CLUSTER", "SETSLOT", &number, "NODE", &other],
    ] {
        assert_eq!(server.run(command), "OK");
    }
    assert!(server.run(&["GET", &names[0]]).starts_with("MOVED"));
    let guard = redlock.lock("k").await.unwrap();
    eventually("the others vote", || {
        let [_, second, third] = values(&cluster, "k");
        second.is_some() && third.is_some()
    })
    .await;
    let followed = Cli::of(cluster.node(1)).locks();
    assert!(!followed.contains_key(&names[0]), "{followed:?}");
    drop(guard);
}

#[tokio::test]
async fn a_client_that_starts_while_the_cluster_refuses_commands_reads_its_markers_later() {
    let cluster = cluster().replicas(0).spawn().unwrap();
    let ttl = Duration::from_secs(9);
    let first = ready(strict(&url(&cluster)).ttl(ttl)).await;
    for voter in 0..3 {
        let owner = owner(&cluster, voter);
        let marker = owner.run(&["KEYS", "*redlock:owner:*"]);
        let day = "86400000";
        assert_eq!(owner.run(&["SET", &marker, day, "PX", day]), "OK");
    }
    // No voter has this slot, but without it the cluster carries out nothing.
    let other = slot(1) + 1;
    cluster.leave_uncovered(other).unwrap();
    let refuses = |voter| {
        owner(&cluster, voter)
            .run(&["GET", &names("k")[voter]])
            .starts_with("CLUSTERDOWN")
    };
    eventually("all refuse", || (0..3).all(refuses)).await;
    let refused = first.lock("k").wait(MS(1000)).await.unwrap_err();
    assert_says(&refused, "CLUSTERDOWN");
    let is_known = |voter| state(&first, voter).to_string().contains("CLUSTERDOWN");
    eventually("all are known to refuse", || (0..3).all(is_known)).await;
    let error = first.ready(Duration::ZERO).await.unwrap_err();
    assert_says(&error, "CLUSTERDOWN");

    let second = built(strict(&url(&cluster)).ttl(ttl)).await;
    for node in second.nodes() {
        assert_says(&node.state, "CLUSTERDOWN");
    }
    cluster.cover(other, 1).unwrap();
    // Without the markers it would wait for longer than the longest ttl.
    second.ready(ttl / 2).await.unwrap();
    drop(second.lock("k").await.unwrap());
    drop(first.lock("k").await.unwrap());
    all_vote(&first).await;
}

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
    tokio::time::sleep(MS(5000)).await;
    let error = redlock.try_lock("k").await;
    assert!(error.is_err(), "its own cluster is down");
    let theirs = built(trusting(&url(&other))).await;
    all_vote(&theirs).await;
    drop(theirs.lock("k").await.unwrap());
}

/// The error names a member of each. In whatever order they answer: core `owner_watch`.
#[tokio::test]
async fn addresses_that_lead_to_two_clusters_are_refused() {
    let [one, other] = [(); 2].map(|()| cluster().replicas(0).spawn().unwrap());
    let seeds = [&one.urls()[..2], &other.urls()[..1]].concat();
    let outcome = trusting(&url_of(&seeds)).build().await;
    let error = assert_refused!(outcome, error @ BuildError::Refused { .. } => error.to_string());
    let (_, named) = error.split_once("two authorities: ").expect("they are two");
    for cluster in [one, other] {
        let mut members = (0..cluster.node_count()).map(|it| cluster.proxy(it).address());
        assert!(members.any(|it| named.contains(&it.to_string())), "{error}");
    }
}
