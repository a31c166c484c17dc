//! Quorums, and sets of nodes.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, sample::subsequence, test_runner::TestCaseResult};
use redlock_core::{NodeId, NodeSet, Quorum};

use crate::check;

fn node(index: usize) -> NodeId {
    NodeId::new(index).expect("below 64")
}

#[test]
fn any_two_quorums_share_a_node() {
    let inputs = (1..=64usize).prop_flat_map(|nodes| {
        let quorum = Quorum::majority(nodes).expect("1 to 64");
        let all: Vec<_> = quorum.all().iter().collect();
        let some = || subsequence(all.clone(), quorum.votes());
        (Just(quorum), some(), some())
    });
    check(1000, &inputs, |(quorum, one, other)| {
        let set = |nodes: &[NodeId]| nodes.iter().copied().collect::<NodeSet>();
        let (one, other) = (set(&one), set(&other));
        let shared = one.difference(one.difference(other));
        prop_assert!(!shared.is_empty());
        prop_assert!(
            shared
                .iter()
                .all(|node| one.contains(node) && other.contains(node))
        );
        // One vote less, and two clients could win.
        prop_assert!(2 * (quorum.votes() - 1) <= quorum.nodes());
        Ok(())
    });
}

#[test]
fn node_sets_are_sets() {
    let nodes = || vec(0..64usize, 0..70);
    check(1000, &(nodes(), nodes()), |(left, right)| {
        let set = |nodes: &[usize]| nodes.iter().map(|index| node(*index)).collect::<NodeSet>();
        let model = |nodes: &[usize]| nodes.iter().copied().collect::<BTreeSet<_>>();
        let same = |set: NodeSet, model: BTreeSet<usize>| -> TestCaseResult {
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert!(set.iter().map(NodeId::index).eq(model.iter().copied()));
            prop_assert!((0..64).all(|index| set.contains(node(index)) == model.contains(&index)));
            Ok(())
        };
        same(set(&left), model(&left))?;
        same(
            set(&left).union(set(&right)),
            &model(&left) | &model(&right),
        )?;
        same(
            set(&left).difference(set(&right)),
            &model(&left) - &model(&right),
        )
    });
}
