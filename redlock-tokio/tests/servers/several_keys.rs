//! Locks of several keys over real servers, which set all of them by one script, or none.

use std::collections::BTreeMap;

use redlock_tokio::{LockGuard, ReleaseOutcome};

use crate::{
    fleet::{clis, each, fleet},
    support::{Cli, MS, asleep_at, assert_says, eventually, woken},
};

fn fence(guard: &LockGuard) -> u64 {
    guard.fencing_token().expect("a fenced lock").get()
}

/// One token fences all keys of a lock: it is larger than the tokens of earlier locks of each key, and smaller than the
/// tokens of the locks that follow.
#[tokio::test]
async fn one_token_is_ordered_for_each_of_several_keys() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    // The year 2223, in microseconds.
    let ahead = 8_000_000_000_000_000_u64;
    each(&nodes, &["SET", "redlock:fence:{b}", &ahead.to_string()]);
    let mut last = BTreeMap::new();
    let keys: [&[&str]; 7] = [
        &["a"],
        &["a", "b"],
        &["a"],
        &["c", "b", "a"],
        &["c"],
        &["b"],
        &["a", "c"],
    ];
    for keys in keys {
        let guard = redlock.lock_all(keys).fenced(true).await.unwrap();
        let token = fence(&guard);
        for &key in keys {
            let earlier = last.insert(key, token).unwrap_or(0);
            assert!(token > earlier, "{keys:?}: {token} after {earlier}");
        }
        guard.extend().await.unwrap();
        guard.release().await;
    }
    assert!(last["a"] > ahead, "it was locked together with b");
    // A counter that is none is named, and no key is set.
    each(&nodes, &["SET", "redlock:fence:{d}", "rubbish"]);
    let lock = redlock.lock_all(["e", "d"]).fenced(true).wait(MS(100));
    assert_says(&lock.await.unwrap_err(), "`redlock:fence:{d}` is not");
    for node in &nodes {
        assert_eq!(node.get("e"), None);
    }
}

/// A waiter sets none of the keys, and raises no counter, while one of them is taken. A node that has lost the keys and
/// their counters gets both again.
#[tokio::test]
async fn all_keys_are_set_together_and_again_and_released_together() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    // A session finds out once whether the server runs scripts.
    let at_connect = nodes[0].calls("eval");
    let guard = redlock.lock_all(["b", "a"]).await.unwrap();
    eventually("it is set", || nodes[0].get("a").is_some()).await;
    let scripts = nodes[0].calls("eval") - at_connect;
    assert_eq!(scripts, 1, "one sets both keys");
    guard.release().await;
    let are_free = || nodes.iter().all(|it| it.get("b").is_none());
    eventually("a minority may be late", are_free).await;
    // This is how node-redlock acquires several resources.
    let theirs = "for _, key in ipairs(KEYS) do \
                    if redis.call('exists', key) == 1 then return 0 end \
                  end \
                  for _, key in ipairs(KEYS) do \
                    redis.call('set', key, ARGV[1], 'PX', ARGV[2]) \
                  end \
                  return #KEYS";
    let acquire = ["EVAL", theirs, "2", "b", "d", "foreign", "60000"];
    assert_eq!(each(&nodes, &acquire), ["2"; 3]);
    let lock = redlock.lock_all(["c", "b", "a"]).fenced(true);
    let waiting = asleep_at(&nodes, lock).await;
    for node in &nodes {
        let unset = ["a", "c", "redlock:fence:{a}"].map(|key| node.get(key));
        assert_eq!(unset, [None, None, None]);
    }
    each(&nodes, &["DEL", "b"]);
    let guard = woken(waiting).await;
    let (value, token) = (Some(guard.value()), Some(fence(&guard).to_string()));
    let has_all = |node: &Cli| {
        let keys = ["a", "b", "c"].map(|key| node.get(key) == value);
        let counters = ["a", "b", "c"].map(|key| node.get(&format!("redlock:fence:{{{key}}}")));
        keys == [true; 3] && counters.iter().all(|it| *it == token)
    };
    eventually("all are set", || nodes.iter().all(has_all)).await;
    assert_eq!(each(&nodes, &acquire), ["0"; 3], "our lock excludes theirs");

    assert_eq!(nodes[0].run(&["FLUSHALL"]), "OK");
    guard.extend().await.expect("two of three");
    eventually("all are back", || has_all(&nodes[0])).await;
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    redlock.shutdown(None).await;
    each(&nodes, &["DEL", "d"]);
    assert_eq!(each(&nodes, &acquire), ["2"; 3], "ours are free");
}
