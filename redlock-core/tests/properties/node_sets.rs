//! Sets of nodes.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, test_runner::TestCaseResult};
use redlock_core::{NodeId, NodeSet};

use crate::check;

fn node(index: usize) -> NodeId {
    NodeId::new(index).expect("below 64")
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
