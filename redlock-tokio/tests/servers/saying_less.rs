//! Servers that say less of themselves than Redis does, or run no scripts. Each product is imitated as its documents
//! describe it.

use std::time::{Duration, Instant};

use redlock_tokio::{BuildError, Check, NodeState, Redlock, RedlockBuilder, ReleaseOutcome};

use crate::support::{
    MS, assert_says, built, eventually,
    fake::{Act, Fake, Moment, bulk, is_one_of, sane_info},
    log::Log,
    states::{all_vote, is_quarantined, is_reconnecting, state, votes},
    unrenewed,
};

/// The longest ttl, which is about the time for which a restarted node has no vote.
const MAX_TTL: Duration = Duration::from_secs(2);

/// Dragonfly ("INFO" and "ROLE" in its command reference): no `run_id`, and no `master_replid2`.
const DRAGONFLY: &str =
    "redis_version redis_mode uptime_in_seconds role connected_slaves master_replid";

/// Upstash ("INFO" in its command reference): no section on replication.
const UPSTASH: &str = "redis_version redis_mode run_id uptime_in_seconds cluster_enabled";

/// Upstash, with a new run id on each connection left out.
const UPSTASH_WITHOUT_RUN_ID: &str = "redis_version redis_mode uptime_in_seconds cluster_enabled";

/// Garnet without a cluster ("Server Management" in its API reference).
const GARNET: &str =
    "run_id uptime_in_seconds redis_mode role cluster_enabled master_replid master_replid2";

/// No product, but a server that says nothing of its start.
const WITHOUT_UPTIME: &str = "run_id role cluster_enabled master_replid master_replid2";

/// No product, but a server that only says that it is a master.
const ONLY_ITS_ROLE: &str = "role";

/// Longer than any quarantine.
const LONG: Duration = Duration::from_secs(1000);

/// Makes a server say these fields of itself, which has been up for this time.
fn disguise(fake: &Fake, run: u64, fields: &'static str, uptime: Duration) {
    let seen_at = Instant::now();
    fake.behave(move |moment| match moment {
        Moment::Asked(command) if is_one_of(command, &["INFO"]) => {
            let uptime = uptime + seen_at.elapsed();
            Some(vec![Act::Say(bulk(info(run, fields, uptime).as_bytes()))])
        }
        _ => None,
    });
}

fn info(run: u64, fields: &str, uptime: Duration) -> String {
    let text = sane_info(run).replace("1000000", &uptime.as_secs().to_string());
    let text = match fields {
        // It has no replication, so both ids of histories are zeros.
        GARNET => text.replace(&format!("replid:{run:040x}"), &format!("replid:{:040}", 0)),
        _ => text,
    };
    let is_said = |line: &&str| {
        let name = line.split(':').next();
        fields.split(' ').any(|it| Some(it) == name)
    };
    text.split_inclusive("\r\n").filter(is_said).collect()
}

/// Three servers that say these fields of themselves, and have been up for this time.
fn three(fields: &'static str, uptime: Duration) -> [Fake; 3] {
    [1, 2, 3].map(|run| {
        let fake = Fake::spawn();
        disguise(&fake, run, fields, uptime);
        fake
    })
}

fn over(fakes: &[Fake]) -> RedlockBuilder {
    Redlock::builder()
        .nodes(fakes.iter().map(Fake::url))
        .ttl(MAX_TTL)
        .node_timeout(MS(1000))
}

/// Returns why a client that allows nothing is refused.
async fn refusal(fakes: &[Fake]) -> String {
    assert_refused!(over(fakes).build().await, BuildError::Refused { .. }).to_string()
}

fn unmet(redlock: &Redlock) -> Vec<Check> {
    let nodes = redlock.nodes();
    assert!(nodes.iter().all(|it| it.unmet == nodes[0].unmet));
    nodes[0].unmet.iter().collect()
}

/// Locks, extends and releases, once all nodes vote.
async fn assert_works(redlock: &Redlock) {
    all_vote(redlock).await;
    let guard = unrenewed(redlock.lock("k")).await;
    guard.extend().await.expect("all vote");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn dragonfly_is_refused_until_its_unknown_promotions_are_allowed() {
    let fakes = three(DRAGONFLY, Duration::ZERO);
    let expected = "INFO lacks master_replid2, so a promoted replica would vote at once, although it may \
                    lack locks: use a server that has these fields, or accept that by allow_unvetted_nodes";
    assert_says(&refusal(&fakes).await, expected);

    let (log, _guard) = Log::start();
    let redlock = built(over(&fakes).allow_unvetted_nodes()).await;
    let line = "votes unvetted, since INFO lacks some fields";
    assert_eq!(log.count(line), 3, "{}", log.text());
    assert_says(&log.text(), "missing=\"master_replid2\"");
    assert_eq!(unmet(&redlock), [Check::Promotion]);
    let server = redlock.nodes()[0].server.clone().expect("it is described");
    assert!(server.run_id.is_none() && server.uptime.is_some() && server.replication.is_some());
    // What the servers do say still counts: they have just started.
    assert!(is_quarantined(&redlock, 0), "{:?}", redlock.nodes());
    assert_works(&redlock).await;
}

/// Clients that know the name of a server and clients that do not would stand in two lines.
#[tokio::test]
async fn a_server_that_tells_its_name_later_is_known_by_it() {
    let fakes = three("uptime_in_seconds role master_replid master_replid2", LONG);
    let redlock = built(over(&fakes)).await;
    let named = || {
        let nodes = redlock.nodes().into_iter();
        let servers = nodes.filter_map(|it| it.server);
        servers.filter(|it| it.run_id.is_some()).count()
    };
    assert_eq!(named(), 0);
    for (fake, run) in fakes.iter().zip(1..) {
        let fields = "run_id uptime_in_seconds role master_replid master_replid2";
        disguise(fake, run, fields, LONG);
    }
    eventually("all names are known", || named() == 3).await;
}

/// Another server takes the place of a node, as a failover behind one address does.
async fn state_after_a_change_of_server(fields: &'static str) -> NodeState {
    let fakes = three(fields, LONG);
    let redlock = built(over(&fakes).allow_unvetted_nodes()).await;
    all_vote(&redlock).await;
    let connections = fakes[0].connections();
    disguise(&fakes[0], 4, fields, 2 * LONG);
    fakes[0].disconnect();
    eventually("the node is connected again", || {
        fakes[0].connections() > connections && !is_reconnecting(&redlock, 0)
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
    for (fields, lacks, unmet_checks) in [
        (UPSTASH, a_replica, &[Check::Role, Check::Promotion][..]),
        (
            UPSTASH_WITHOUT_RUN_ID,
            twice,
            &[Check::Server, Check::Role, Check::Promotion],
        ),
    ] {
        let fakes = three(fields, LONG);
        let text = refusal(&fakes).await;
        assert_says(&text, &format!("INFO lacks {lacks}"));
        assert_says(&text, "allow_unvetted_nodes");
        let redlock = built(over(&fakes).allow_unvetted_nodes()).await;
        assert_eq!(unmet(&redlock), unmet_checks);
        assert_works(&redlock).await;
    }
}

#[tokio::test]
async fn garnet_with_lua_is_vetted_like_redis() {
    let fakes = three(GARNET, LONG);
    let redlock = over(&fakes).build().await.expect("it says enough");
    assert_eq!(unmet(&redlock), []);
    assert_works(&redlock).await;
}

/// Such a server looks at a command of a transaction only when it carries out the transaction.
#[tokio::test]
async fn garnet_without_lua_is_refused_by_the_name_of_the_missing_command() {
    let fakes = [(); 3].map(|()| Fake::spawn());
    for fake in &fakes {
        fake.behave(|moment| {
            let Moment::Asked(command) = moment else {
                return None;
            };
            let answer = if is_one_of(command, &["EVAL", "SCRIPT"]) {
                "-ERR This instance has Lua scripting support disabled\r\n"
            } else if is_one_of(command, &["HELLO", "CLIENT", "PING", "INFO"]) {
                return None;
            } else {
                "+QUEUED\r\n"
            };
            Some(vec![Act::Say(answer.into())])
        });
    }
    for builder in [over(&fakes), over(&fakes).allow_unvetted_nodes()] {
        let error = builder.build().await.expect_err("it cannot release locks");
        assert_says(
            &error,
            "locks need commands that this client may not use here, or that were renamed: EVAL",
        );
    }
}

#[tokio::test]
async fn a_server_without_an_uptime_waits_once_unless_that_is_allowed() {
    let fakes = three(WITHOUT_UPTIME, LONG);
    let (log, _guard) = Log::start();
    let redlock = built(over(&fakes)).await; // its run id shows restarts
    assert_eq!(unmet(&redlock), []);
    assert_says(&log.text(), "INFO lacks uptime_in_seconds");
    assert!(is_quarantined(&redlock, 0), "{:?}", redlock.nodes());
    all_vote(&redlock).await;
    // Another client waits again.
    let second = built(over(&fakes)).await;
    assert!(is_quarantined(&second, 0), "{:?}", second.nodes());
    let lenient = built(over(&fakes).allow_unvetted_nodes()).await;
    assert!(votes(&lenient, 0));
    assert_eq!(unmet(&lenient), [Check::Start]);
    assert_works(&redlock).await;
}
