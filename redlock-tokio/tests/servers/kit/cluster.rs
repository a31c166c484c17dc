//! The test kit's clusters: their shards fail over, their slots move, and their networks part.

use redlock_kit::{Cluster, RedisServer, SlotMove};

use crate::support::{Cli, eventually, shards};

/// Keys of one slot, which the first shard has at the start.
const TAGGED: [&str; 3] = ["{06S}a", "{06S}b", "{06S}c"];
const SLOT: u16 = 0;

/// The command line of a client that reaches a node through its proxy.
fn client(cluster: &Cluster, node: usize) -> Cli {
    Cli::at(cluster.proxy(node).address().port())
}

#[tokio::test]
async fn a_shard_fails_over_by_order_and_keeps_its_keys() {
    let cluster = Cluster::spawn().unwrap();
    assert_eq!(
        client(&cluster, 0).run(&["CLUSTER", "KEYSLOT", TAGGED[0]]),
        SLOT.to_string()
    );
    client(&cluster, 0).set(TAGGED[0], "v");
    assert_eq!(cluster.fail_over(0).unwrap(), 3);
    assert_eq!(cluster.owner_of(SLOT), Some(3));
    assert_eq!(client(&cluster, 3).get(TAGGED[0]).as_deref(), Some("v"));
    cluster.settle().unwrap();
    let moved = client(&cluster, 0).run(&["GET", TAGGED[0]]);
    let port = cluster.proxy(3).address().port();
    assert!(
        moved.starts_with(&format!("MOVED {SLOT} 127.0.0.1:{port}")),
        "{moved}"
    );

    cluster.node(3).kill();
    assert_eq!(cluster.force_fail_over(0).unwrap(), 0);
    cluster.node(3).restart().unwrap();
    cluster.settle().unwrap();
}

#[tokio::test]
async fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let cluster = shards::cluster().password("p:ss").spawn().unwrap();
    cluster.node(1).kill();
    assert_eq!(cluster.wait_for_other_master(1).unwrap(), 4);
    cluster.node(1).restart().unwrap();
    cluster.settle().unwrap();
    assert_eq!(cluster.master_of(1), Some(4));
    assert_eq!(cluster.nodes_of(1), [1, 4]);
}

#[tokio::test]
async fn slots_move_with_their_keys_and_stop_half_way() {
    let cluster = Cluster::builder().replicas(0).spawn().unwrap();
    let (old, new) = (client(&cluster, 0), client(&cluster, 1));
    TAGGED.iter().for_each(|key| old.set(key, "v"));

    let mut moves = cluster.start_move(SLOT..=SLOT + 9, 1).unwrap();
    assert_eq!(moves.len(), 1);
    let slots = moves.pop().unwrap();
    assert_eq!(slots.move_keys(1).unwrap(), 1);
    let answers = TAGGED.map(|key| old.run(&["GET", key]));
    let asks = answers.iter().filter(|it| it.starts_with("ASK "));
    assert_eq!(asks.count(), 1, "{answers:?}");
    let several = old.run(&[&["MGET"][..], &TAGGED].concat());
    // Version 6 says "ASK".
    assert!(!several.starts_with('v'), "{several}");
    drop(slots);

    cluster.move_slots(SLOT..=SLOT + 9, 1).unwrap();
    assert_eq!(cluster.owner_of(SLOT), Some(1));
    assert!(
        TAGGED
            .iter()
            .all(|key| new.get(key).as_deref() == Some("v"))
    );
    cluster.settle().unwrap();
    assert_eq!(cluster.owner_of(SLOT + 10), Some(0), "other slots stay");
}

#[tokio::test]
async fn a_move_goes_on_after_a_failover_of_its_target() {
    let cluster = Cluster::spawn().unwrap();
    let slots = start_move(&cluster);
    assert_eq!(cluster.fail_over(1).unwrap(), 4);
    slots.finish().unwrap();
    check_move(&cluster, 4);
}

#[tokio::test]
async fn a_move_goes_on_after_a_failover_of_its_source() {
    let cluster = Cluster::spawn().unwrap();
    let slots = start_move(&cluster);
    assert_eq!(cluster.fail_over(0).unwrap(), 3);
    // From then on the target of Redis 7.0 names no owner of the slot, and refuses the keys. Other servers may not.
    let old_master = format!(":{}@", cluster.proxy(0).address().port());
    let is_replica = || {
        let nodes = client(&cluster, 1).run(&["CLUSTER", "NODES"]);
        let mut lines = nodes.lines();
        lines.any(|it| it.contains(&old_master) && it.contains("slave"))
    };
    eventually(
        "the target knows that the old master is a replica",
        is_replica,
    )
    .await;
    slots.finish().unwrap();
    check_move(&cluster, 1);
}

#[tokio::test]
async fn a_move_goes_on_while_the_killed_master_of_its_target_is_replaced() {
    let cluster = shards::cluster().spawn().unwrap();
    let slots = start_move(&cluster);
    // By the master's word: a replica of Redis 8.10 does not count the keys of a slot on its way.
    let is_copied = || {
        let info = client(&cluster, 1).run(&["INFO", "replication"]);
        let after = |word| info.split_once(word)?.1.split([',', '\r', '\n']).next();
        after(",offset=").is_some_and(|copied| after("master_repl_offset:") == Some(copied))
    };
    eventually("the replica has the key that has moved", is_copied).await;
    cluster.node(1).kill();
    assert_eq!(slots.move_keys(usize::MAX).unwrap(), TAGGED.len() - 1);
    assert_eq!(cluster.master_of(1), Some(4));
    slots.finish().unwrap();
    // It stays down. A server of Valkey 9.1 that comes back and still has the mark of the import can take its shard
    // over without a vote, and then the keys are lost.
    check_owner(&cluster, 4);
}

/// Moves one of the keys of a slot from shard 0 to shard 1.
fn start_move(cluster: &Cluster) -> SlotMove<'_> {
    let old = client(cluster, 0);
    TAGGED.iter().for_each(|key| old.set(key, "v"));
    let slots = cluster.start_move(SLOT..=SLOT, 1).unwrap().pop().unwrap();
    assert_eq!(slots.move_keys(1).unwrap(), 1);
    slots
}

/// Checks that all nodes agree, and that this one has the slot and all keys.
fn check_move(cluster: &Cluster, node: usize) {
    cluster.settle().unwrap();
    check_owner(cluster, node);
}

/// Checks that this node has the slot and all keys.
fn check_owner(cluster: &Cluster, node: usize) {
    assert_eq!(cluster.owner_of(SLOT), Some(node));
    let values = TAGGED.map(|key| client(cluster, node).get(key));
    assert_eq!(values, TAGGED.map(|_| Some("v".to_owned())));
}

#[tokio::test]
async fn a_slot_can_lose_its_owner_and_get_one_again() {
    let cluster = Cluster::builder().replicas(0).spawn().unwrap();
    cluster.leave_uncovered(SLOT).unwrap();
    assert_eq!(cluster.owner_of(SLOT), None);
    for node in 0..3 {
        let is_down = || {
            client(&cluster, node)
                .run(&["GET", "k"])
                .starts_with("CLUSTERDOWN")
        };
        eventually("no slot is served", is_down).await;
    }
    cluster.cover(SLOT, 2).unwrap();
    cluster.settle().unwrap();
    assert_eq!(cluster.owner_of(SLOT), Some(2));
}

#[tokio::test]
async fn a_master_that_is_cut_off_is_replaced_while_clients_reach_it() {
    let cluster = shards::cluster().spawn().unwrap();
    cluster.cut_off(&[0]);
    client(&cluster, 0).set(TAGGED[0], "lost");
    assert_eq!(cluster.wait_for_other_master(0).unwrap(), 3);
    let refused = client(&cluster, 0).run(&["GET", TAGGED[0]]);
    assert!(refused.starts_with("CLUSTERDOWN"), "{refused}");
    cluster.heal();
    cluster.settle().unwrap();
    assert_eq!(cluster.master_of(0), Some(3));
    assert_eq!(client(&cluster, 3).get(TAGGED[0]), None);
}

#[tokio::test]
async fn no_process_outlives_its_cluster() {
    let cluster = Cluster::builder().shards(1).spawn().unwrap();
    let nodes = (0..cluster.node_count()).map(|it| cluster.node(it));
    let pids: Vec<_> = nodes.map(RedisServer::pid).collect();
    assert_eq!(pids.len(), 2);
    drop(cluster);
    for pid in pids {
        assert!(!std::fs::exists(format!("/proc/{pid}")).unwrap());
    }
}
