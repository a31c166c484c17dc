//! The test kit's clusters, while slots move and shards fail over. The [topologies](crate::topologies) use them in all
//! other ways.

use redlock_kit::{Cluster, SlotMove};

use crate::support::{Cli, eventually, shards};

/// Keys of one slot, which the first shard has at the start.
const TAGGED: [&str; 3] = ["{06S}a", "{06S}b", "{06S}c"];
const SLOT: u16 = 0;

#[tokio::test]
async fn a_move_goes_on_after_a_failover_of_its_source() {
    let cluster = Cluster::spawn().unwrap();
    let slots = start_move(&cluster);
    assert_eq!(cluster.fail_over(0).unwrap(), 3);
    // From then on the target of Redis 7.0 names no owner of the slot, and refuses the keys. Other servers may not.
    let old_master = format!(":{}@", cluster.proxy(0).address().port());
    let is_replica = || {
        let nodes = Cli::of(cluster.node(1)).run(&["CLUSTER", "NODES"]);
        let mut lines = nodes.lines();
        lines.any(|it| it.contains(&old_master) && it.contains("slave"))
    };
    eventually("the target knows the replica", is_replica).await;
    slots.finish().unwrap();
    cluster.settle().unwrap();
    assert_has_all(&cluster, 1);
}

#[tokio::test]
async fn a_move_goes_on_while_the_killed_master_of_its_target_is_replaced() {
    let cluster = shards::cluster().spawn().unwrap();
    let slots = start_move(&cluster);
    // By the master's word: a replica of Redis 8.10 does not count the keys of a slot on its way.
    let is_copied = || {
        let info = Cli::of(cluster.node(1)).run(&["INFO", "replication"]);
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
    assert_has_all(&cluster, 4);
}

/// Moves one of the keys of a slot from shard 0 to shard 1.
fn start_move(cluster: &Cluster) -> SlotMove<'_> {
    let old = Cli::of(cluster.node(0));
    TAGGED.iter().for_each(|key| old.set(key, "v"));
    let slots = cluster.start_move(SLOT..=SLOT, 1).unwrap().pop().unwrap();
    assert_eq!(slots.move_keys(1).unwrap(), 1);
    let answers = TAGGED.map(|key| old.run(&["GET", key]));
    let asks = answers.iter().filter(|it| it.starts_with("ASK "));
    assert_eq!(asks.count(), 1, "{answers:?}");
    slots
}

/// Asserts that this node has the slot and all keys, and that the slots beside it have stayed.
fn assert_has_all(cluster: &Cluster, node: usize) {
    assert_eq!(cluster.owner_of(SLOT), Some(node));
    assert_ne!(cluster.owner_of(SLOT + 1), Some(node));
    let values = TAGGED.map(|key| Cli::of(cluster.node(node)).get(key));
    assert_eq!(values, TAGGED.map(|_| Some("v".to_owned())));
}
