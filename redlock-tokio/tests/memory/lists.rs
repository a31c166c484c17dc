//! A change of the list of nodes while clients with the old list hold locks: what `OPERATIONS.md` says is safe.

use redlock_tokio::{Clock, Durability, MemoryNode, Ttl};

use crate::support::{built, scripted::over_custom};

#[tokio::test(start_paused = true)]
async fn lists_that_differ_by_one_node_more_exclude_each_other_and_exchanged_nodes_do_not() {
    let nodes = [(); 6].map(|()| MemoryNode::with_clock(Clock::tokio()));
    let longest = [0, 1, 2, 3, 4, 5];
    for len in 1..longest.len() {
        let (short, long) = (&longest[..len], &longest[..=len]);
        assert_eq!(loophole(&nodes, short, long).await, None, "{len} nodes");
        assert_eq!(loophole(&nodes, long, short).await, None, "{len} nodes");
    }
    for (old, new) in [
        (&[0, 1, 2, 3, 4][..], &[0, 1, 2, 3, 5][..]),
        (&[0, 1, 2], &[0, 1, 5]),
    ] {
        let found = loophole(&nodes, old, new).await;
        assert!(found.is_some(), "{old:?} and {new:?}");
    }
}

/// Six nodes. A list is a choice of them, by their indexes.
type Nodes = [MemoryNode; 6];

fn is_majority(chosen: u32, list: &[usize]) -> bool {
    let votes = list.iter().filter(|node| chosen & (1 << **node) != 0);
    2 * votes.count() > list.len()
}

/// Returns a majority of `from` whose keys do not keep a client with the list `to` from the lock, if there is one.
async fn loophole(nodes: &Nodes, from: &[usize], to: &[usize]) -> Option<u32> {
    let voters = to.iter().map(|node| nodes[*node].clone());
    let redlock = built(over_custom(voters).durability(Durability::AssumedForTests)).await;
    for chosen in (0..1 << nodes.len()).filter(|it| is_majority(*it, from)) {
        nodes.iter().for_each(MemoryNode::clear);
        for node in from.iter().filter(|node| chosen & (1 << **node) != 0) {
            nodes[*node].insert("k", "the holder's token", Ttl::MAX);
        }
        if redlock.try_lock("k").await.is_ok() {
            return Some(chosen);
        }
    }
    None
}
