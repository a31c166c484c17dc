//! The test kit's clusters, while slots move and a shard fails over. The [topologies](crate::topologies) use them in all
//! other ways.

use crate::support::{Cli, eventually, shards};

/// Keys of one slot, which the first shard has at the start.
const TAGGED: [&str; 3] = ["{06S}a", "{06S}b", "{06S}c"];
const SLOT: u16 = 0;

#[tokio::test]
async fn a_move_goes_on_while_the_killed_master_of_its_target_is_replaced() {
    let cluster = shards::cluster().spawn().unwrap();
    let old = Cli::of(cluster.node(0));
    TAGGED.iter().for_each(|key| old.set(key, "v"));
    let slots = cluster.start_move(SLOT..=SLOT, 1).unwrap().pop().unwrap();
    assert_eq!(slots.move_keys(1).unwrap(), 1);
    let answers = TAGGED.map(|key| old.run(&["GET", key]));
    let asks = answers.iter().filter(|it| it.starts_with("ASK "));
    assert_eq!(asks.count(), 1, "{answers:?}");
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
    assert_eq!(cluster.owner_of(SLOT), Some(4));
    assert_ne!(cluster.owner_of(SLOT + 1), Some(4));
    let values = TAGGED.map(|key| Cli::of(cluster.node(4)).get(key));
    assert_eq!(values, TAGGED.map(|_| Some("v".to_owned())));
}
