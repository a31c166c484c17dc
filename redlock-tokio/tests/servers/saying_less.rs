//! Servers that say less of themselves than Redis does, and lack some of its commands. Each product is
//! imitated, as its documents describe it, by a proxy in front of a real server.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use redlock_kit::RedisServers;
use redlock_tokio::{BuildError, Check, NodeState, Redlock, RedlockBuilder, ReleaseOutcome};

use crate::{
    fleet::clis,
    support::{
        Cli, MS, assert_says, built,
        disguise::{Disguise, Shape},
        eventually,
        kinds::KINDS,
        log::Log,
        states::{all_vote, is_quarantined, is_reconnecting, state, votes},
        unrenewed,
    },
};

/// The longest ttl, which is about the time for which a restarted node has no vote.
const MAX_TTL: Duration = Duration::from_secs(2);

const AS_REDIS: Shape = Shape {
    info: str::to_owned,
    answers: &[],
    queues_them: false,
};

/// Dragonfly ("INFO" and "ROLE" in its command reference): no `run_id`, no `master_replid2`, and a role that is
/// `master` or `replica`.
const DRAGONFLY: Shape = Shape {
    info: |text| {
        let fields = "redis_version redis_mode arch_bits multiplexing_api tcp_port uptime_in_seconds uptime_in_days \
                      role connected_slaves master_host master_port master_link_status master_replid";
        keep(text, fields).replace("role:slave", "role:replica")
    },
    ..AS_REDIS
};

/// Upstash ("INFO" and "Connection commands" in its command reference): no section on replication, no
/// `CLIENT TRACKING`.
const UPSTASH: Shape = Shape {
    info: |text| {
        keep(
            text,
            "redis_version redis_mode run_id uptime_in_seconds cluster_enabled",
        )
    },
    answers: &[("CLIENT TRACKING", "-ERR unknown subcommand\r\n")],
    ..AS_REDIS
};

/// Upstash, with a new run id on each connection left out.
const UPSTASH_WITHOUT_RUN_ID: Shape = Shape {
    info: |text| (UPSTASH.info)(text).replace("run_id", "walk_id"),
    ..UPSTASH
};

/// Garnet without a cluster ("Server Management" in its API reference): it has no replication, so both ids
/// of histories are zeros. It runs scripts only if it was started with `--lua`.
const GARNET: Shape = Shape {
    info: |text| {
        let fields = "run_id uptime_in_seconds uptime_in_days redis_mode role cluster_enabled";
        let ids = ["master_replid", "master_replid2"].map(|name| format!("{name}:{:040}\r\n", 0));
        match text.contains("role:") {
            true => keep(text, fields) + &ids.concat(),
            false => keep(text, fields),
        }
    },
    ..AS_REDIS
};

const NO_LUA: &str = "-ERR This instance has Lua scripting support disabled\r\n";

const GARNET_WITHOUT_LUA: Shape = Shape {
    answers: &[("EVAL", NO_LUA), ("EVALSHA", NO_LUA), ("SCRIPT", NO_LUA)],
    // The server looks at a command of a transaction only when it carries out the transaction.
    queues_them: true,
    ..GARNET
};

/// No product, but a server that says nothing of its start.
const WITHOUT_UPTIME: Shape = Shape {
    info: |text| text.replace("uptime_in_seconds", "uptime_in_weeks"),
    ..AS_REDIS
};

/// No product, but a server that only says that it is a master.
const ONLY_ITS_ROLE: Shape = Shape {
    info: |text| keep(text, "role"),
    ..AS_REDIS
};

/// Returns the lines of a text with these fields, and its headings.
fn keep(text: &str, fields: &str) -> String {
    let is_kept = |line: &&str| {
        let name = line.split(':').next();
        line.starts_with('#') || fields.split(' ').any(|it| Some(it) == name)
    };
    let lines = text.split("\r\n").filter(is_kept);
    lines.map(|line| format!("{line}\r\n")).collect()
}

/// Three servers in one disguise, and one that has started with them.
struct Bed {
    servers: RedisServers,
    disguises: Vec<Disguise>,
}

impl Bed {
    fn new(shape: Shape) -> Self {
        let servers = RedisServers::spawn(4).unwrap();
        let first = servers.iter().take(3);
        let disguises = first.map(|it| Disguise::of(it, shape)).collect();
        Self { servers, disguises }
    }

    fn urls(&self) -> Vec<String> {
        self.disguises.iter().map(Disguise::url).collect()
    }

    fn builder(&self) -> RedlockBuilder {
        builder(&self.urls())
    }

    /// Returns why a client that allows nothing is refused.
    async fn refusal(&self) -> String {
        let outcome = self.builder().build().await;
        assert_refused!(outcome, BuildError::Refused { .. }).to_string()
    }
}

fn builder(urls: &[String]) -> RedlockBuilder {
    Redlock::builder()
        .nodes(urls)
        .ttl(MAX_TTL)
        .node_timeout(MS(1000))
}

fn unmet(redlock: &Redlock) -> Vec<Check> {
    let nodes = redlock.nodes();
    assert!(nodes.iter().all(|it| it.unmet == nodes[0].unmet));
    nodes[0].unmet.iter().collect()
}

/// Uses each kind of lock, and waits for one that another client has.
async fn assert_all_features_work(bed: &Bed, redlock: &Redlock) {
    for kind in KINDS {
        let guard = unrenewed((kind.lock)(redlock)).await;
        guard.extend().await.expect(kind.name);
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    }
    // A waiter gets the lock, whether or not the server reports that the key is free.
    let other = built(builder(&bed.urls()).allow_unvetted_nodes()).await;
    let held = other.lock("contended").await.expect("free");
    let waiter = redlock.lock("contended").wait(MS(10_000)).into_future();
    let (taken, ()) = tokio::join!(waiter, async {
        tokio::time::sleep(MS(50)).await;
        drop(held);
    });
    drop(taken.expect("the lock is free"));
    redlock.shutdown(None).await;
    other.shutdown(None).await;
    for cli in clis(&bed.servers) {
        assert!(cli.locks().is_empty(), "no key is left");
    }
}

#[tokio::test]
async fn dragonfly_is_refused_until_its_unknown_promotions_are_allowed() {
    let bed = Bed::new(DRAGONFLY);
    let text = bed.refusal().await;
    let expected = "INFO lacks master_replid2, so a promoted replica would vote at once, although it may \
                    lack locks: use a server that has these fields, or accept that by allow_unvetted_nodes";
    assert!(text.contains(expected), "{text}");

    let (log, _guard) = Log::start();
    let redlock = built(bed.builder().allow_unvetted_nodes()).await;
    let line = "votes unvetted, since INFO lacks some fields";
    assert_eq!(log.text().matches(line).count(), 3, "{}", log.text());
    assert_says(&log.text(), "missing=\"master_replid2\"");
    assert_eq!(unmet(&redlock), [Check::Promotion]);
    let server = redlock.nodes()[0].server.clone().expect("it is described");
    assert!(server.run_id.is_none() && server.uptime.is_some() && server.replication.is_some());
    // What the servers do say still counts: they have just started.
    assert!(is_quarantined(&redlock, 0), "{:?}", redlock.nodes());
    all_vote(&redlock).await;
    assert_all_features_work(&bed, &redlock).await;
}

/// Clients that know the name of a server and clients that do not would stand in two lines.
#[tokio::test]
async fn a_server_that_tells_its_name_later_is_known_by_it() {
    static TELLS: AtomicBool = AtomicBool::new(false);
    let bed = Bed::new(Shape {
        info: |text| match TELLS.load(Ordering::Relaxed) {
            true => text.to_owned(),
            false => text.replace("run_id", "walk_id"),
        },
        ..AS_REDIS
    });
    let redlock = built(bed.builder()).await;
    let named = || {
        let nodes = redlock.nodes().into_iter();
        let servers = nodes.filter_map(|it| it.server);
        servers.filter(|it| it.run_id.is_some()).count()
    };
    assert_eq!(named(), 0);
    TELLS.store(true, Ordering::Relaxed);
    eventually("all names are known", || named() == 3).await;
}

/// Another server takes the place of a node, as a failover behind one address does.
async fn state_after_a_change_of_server(shape: Shape) -> NodeState {
    let bed = Bed::new(shape);
    let successor = bed.servers.get(3);
    let redlock = built(bed.builder().allow_unvetted_nodes()).await;
    all_vote(&redlock).await;
    bed.disguises[0].hide(successor);
    let cli = Cli::of(successor);
    eventually("the node is connected again", || {
        cli.connections() > 1 && !is_reconnecting(&redlock, 0)
    })
    .await;
    state(&redlock, 0)
}

#[tokio::test]
async fn another_dragonfly_in_the_place_of_a_node_has_no_vote_at_first() {
    let state = state_after_a_change_of_server(DRAGONFLY).await;
    assert!(matches!(state, NodeState::Quarantined { .. }), "{state:?}");
}

/// The control, and what a client accepts: nothing tells two such servers apart.
#[tokio::test]
async fn another_server_that_says_nothing_of_its_identity_votes_at_once() {
    let state = state_after_a_change_of_server(ONLY_ITS_ROLE).await;
    assert_eq!(state, NodeState::Voting);
}

#[tokio::test]
async fn upstash_is_refused_until_its_unknown_role_is_allowed() {
    let a_replica = "role, master_replid2, so a replica would vote, ";
    let twice = "run_id and master_replid, role, master_replid2, so one server under two addresses would vote \
                 twice, a replica would vote, ";
    for (shape, lacks, unmet_checks) in [
        (UPSTASH, a_replica, &[Check::Role, Check::Promotion][..]),
        (
            UPSTASH_WITHOUT_RUN_ID,
            twice,
            &[Check::Server, Check::Role, Check::Promotion],
        ),
    ] {
        let bed = Bed::new(shape);
        let text = bed.refusal().await;
        assert_says(&text, &format!("INFO lacks {lacks}"));
        assert_says(&text, "allow_unvetted_nodes");
        let redlock = built(bed.builder().allow_unvetted_nodes()).await;
        assert_eq!(unmet(&redlock), unmet_checks);
        all_vote(&redlock).await;
        assert_all_features_work(&bed, &redlock).await;
    }
}

#[tokio::test]
async fn garnet_with_lua_is_vetted_like_redis() {
    let bed = Bed::new(GARNET);
    let redlock = bed.builder().build().await.expect("it says enough");
    assert_eq!(unmet(&redlock), []);
    all_vote(&redlock).await;
    assert_all_features_work(&bed, &redlock).await;
}

#[tokio::test]
async fn garnet_without_lua_is_refused_by_the_name_of_the_missing_command() {
    let bed = Bed::new(GARNET_WITHOUT_LUA);
    for builder in [bed.builder(), bed.builder().allow_unvetted_nodes()] {
        let error = builder.build().await.expect_err("it cannot release locks");
        assert_says(
            &error,
            "locks need commands that this client may not use here",
        );
        assert_says(&error, "EVAL");
    }
}

#[tokio::test]
async fn a_server_without_an_uptime_waits_once_unless_that_is_allowed() {
    let bed = Bed::new(WITHOUT_UPTIME);
    let (log, _guard) = Log::start();
    let redlock = built(bed.builder()).await; // its run id shows restarts
    assert_eq!(unmet(&redlock), []);
    assert_says(&log.text(), "INFO lacks uptime_in_seconds");
    assert!(is_quarantined(&redlock, 0), "{:?}", redlock.nodes());
    all_vote(&redlock).await;
    // Another client waits again.
    let second = built(bed.builder()).await;
    assert!(is_quarantined(&second, 0), "{:?}", second.nodes());
    let lenient = built(bed.builder().allow_unvetted_nodes()).await;
    assert!(votes(&lenient, 0));
    assert_eq!(unmet(&lenient), [Check::Start]);
    assert_all_features_work(&bed, &redlock).await;
}
