//! Searches for what is held, over nodes in memory.

use redlock_tokio::{Inspection, Key, MemoryNode, Redlock, Ttl, Verdict, errors::NodeReport};

use crate::support::{
    assert_says, built,
    in_memory::{over, three_nodes},
    scripted::Scripted,
};

/// Returns what the steps of a search find.
async fn steps(redlock: &Redlock) -> Vec<Result<Vec<Inspection>, NodeReport>> {
    let mut search = redlock.search();
    let mut steps = Vec::new();
    while let Some(step) = search.next().await {
        steps.push(step);
    }
    steps
}

#[tokio::test(start_paused = true)]
async fn each_lock_with_the_prefix_is_found_on_the_first_node_that_has_it() {
    let nodes = three_nodes();
    let redlock = built(over(&nodes).prefix("app:")).await;
    let _lock = redlock.lock("both").await.unwrap();
    let semaphore = redlock.semaphore("jobs", 2);
    let _one = semaphore.acquire().await.unwrap();
    let _other = semaphore.acquire().await.unwrap();
    // Two locks with one key, which have nothing to do with each other.
    let _same = redlock.lock("jobs").await.unwrap();
    let _reader = redlock.rw_lock("read").read().await.unwrap();
    nodes[2].insert("app:one", "of a minority", Ttl::MAX);
    nodes[2].insert("other", "of another prefix", Ttl::MAX);
    let found = steps(&redlock).await;
    let found: Vec<Vec<_>> = found.into_iter().map(Result::unwrap).collect();
    let keys = |it: &Vec<Inspection>| -> Vec<_> { it.iter().map(|it| it.key().clone()).collect() };
    let keys: Vec<_> = found.iter().map(keys).collect();
    let expected = [
        &["app:both", "app:jobs", "app:jobs", "app:read"][..],
        &[],
        &["app:one"],
    ];
    let expected = expected.map(|it| it.iter().map(|it| Key::new(it).unwrap()).collect());
    assert_eq!(keys, expected.to_vec() as Vec<Vec<_>>);
    let verdicts = found.into_iter().flatten().map(|it| it.verdict());
    let verdicts: Vec<_> = verdicts.collect();
    let [
        Verdict::Held { .. },
        Verdict::Held { .. },
        Verdict::Permits { taken: 2 },
        Verdict::Shared { .. },
        Verdict::Free,
    ] = &verdicts[..]
    else {
        panic!("{verdicts:?}");
    };
}

#[tokio::test(start_paused = true)]
async fn a_search_goes_on_behind_nodes_that_fail_or_cannot_be_searched() {
    let nodes = three_nodes();
    let scripted = Scripted::obeying(&MemoryNode::new()).address("scripted");
    let builder = over(&nodes).custom_nodes([scripted]);
    let redlock = built(builder.custom_nodes([MemoryNode::new()])).await;
    let _lock = redlock.lock("k").await.unwrap();
    nodes[0].set_down(true);
    let steps = steps(&redlock).await;
    let [Err(down), Ok(found), Ok(known), Err(unsupported), Ok(_)] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_says(&down.objection, "down");
    assert_eq!((found.len(), known.len()), (1, 0));
    assert_eq!(&*unsupported.address, "scripted");
    assert_says(&unsupported.objection, "does not know the operation");
}
