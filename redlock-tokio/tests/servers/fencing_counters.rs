//! The names of fencing counters, and foreign values under such a name.

use redlock_kit::RedisServers;
use redlock_tokio::{
    LockError, LockOptions, NodeError, Redlock,
    errors::{CounterDefect, KeyError, Objection},
};

use crate::support::{Cli, eventually};

fn counter(key: &str) -> String {
    format!("redlock:fence:{{{key}}}")
}

async fn three() -> (RedisServers, [Cli; 3], Redlock) {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = [0, 1, 2].map(|index| Cli::of(servers.get(index)));
    let redlock = servers.builder().build().await.unwrap();
    (servers, nodes, redlock)
}

#[tokio::test]
async fn a_counter_does_not_collide_with_other_keys() {
    let (_servers, nodes, redlock) = three().await;
    let fenced = redlock.lock("FX").fenced(true).await.unwrap();
    let other = redlock.try_lock("FX:fence").await;
    drop(other.expect("a key of its own"));
    fenced.release().await;
    // Foreign keys with similar names are ignored.
    for node in &nodes {
        node.run(&["LPUSH", "FY:fence", "a"]);
        node.run(&["SET", "FZ:fence", "5", "PX", "600000"]);
    }
    let guard = redlock.lock("FY").fenced(true).await;
    drop(guard.expect("its counter has another name"));
    let guard = redlock.lock("FZ").fenced(true).await.unwrap();
    guard.release().await;
    for node in &nodes {
        assert_eq!(node.run(&["LRANGE", "FY:fence", "0", "-1"]), "a");
        assert_eq!(node.get("FZ:fence"), Some("5".into()));
        assert!(node.pttl("FZ:fence") > 0, "its ttl is gone");
    }
}

/// Commands that put a foreign value under a counter's name, each with the defect that the error reports.
const FOREIGN: [(&[&str], CounterDefect); 5] = [
    (&["LPUSH", "NAME", "a"], CounterDefect::OtherType),
    (&["SET", "NAME", "rubbish"], CounterDefect::NoNumber),
    (&["SET", "NAME", "-5"], CounterDefect::NoNumber),
    (&["SET", "NAME", "9007199254740992"], CounterDefect::Beyond),
    (&["SET", "NAME", "90071992547409911"], CounterDefect::Beyond),
];

#[tokio::test]
async fn a_foreign_value_under_a_counters_name_is_named_and_left_alone() {
    let (_servers, nodes, redlock) = three().await;
    for (index, (command, expected)) in FOREIGN.into_iter().enumerate() {
        let key = format!("key {index}");
        let name = counter(&key);
        let put: Vec<_> = command.iter().map(|it| it.replace("NAME", &name)).collect();
        let put: Vec<_> = put.iter().map(String::as_str).collect();
        for node in &nodes {
            node.run(&put);
        }
        let state = |node: &Cli| {
            let ttl = node.pttl(&name);
            (node.run_for_bytes(&["DUMP", &name]), ttl > 0)
        };
        let before = nodes.each_ref().map(state);
        let once = LockOptions::new().fenced(true).max_attempts(1);
        let result = redlock.lock(&key).options(once).await;
        let Err(LockError::NoQuorum(attempts)) = result else {
            panic!("{expected:?}: {result:?}");
        };
        for report in attempts.nodes.iter() {
            let error = Objection::Failed(NodeError::NotACounter {
                name: name.as_str().into(),
                defect: expected,
            });
            assert_eq!(report.objection, error);
            let text = report.objection.to_string();
            assert!(text.contains(&name) && text.contains("delete it"), "{text}");
        }
        assert!(attempts.nodes.len() > 1, "a majority reports it");
        for node in &nodes {
            // The request is told when a majority has answered, and released in the background.
            eventually("the key is released", || node.get(&key).is_none()).await;
        }
        assert_eq!(
            nodes.each_ref().map(state),
            before,
            "{expected}: it was changed"
        );
        // A lock without a fence ignores the value.
        let plain = redlock.try_lock(&key).await.unwrap();
        plain.release().await;
        for node in &nodes {
            node.run(&["DEL", &name]);
        }
        let fenced = redlock.lock(&key).fenced(true).await;
        drop(fenced.expect("the foreign value is gone"));
    }
}

/// A counter lives for a day from each raise, whether it is raised with the key or in a round of its own.
#[tokio::test]
async fn counters_expire_a_day_after_the_last_raise() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let (_servers, nodes, redlock) = three().await;
    let name = counter("k");
    // Counters that are ahead cost a second round.
    for ahead in [None, Some("8000000000000000")] {
        for node in &nodes {
            if let Some(ahead) = ahead {
                node.set(&name, ahead);
            }
        }
        let guard = redlock.lock("k").fenced(true).await.unwrap();
        guard.release().await;
        for node in &nodes {
            let is_new = || {
                let left = node.pttl(&name);
                left > DAY - 60_000 && left <= DAY
            };
            eventually("the counter was raised", is_new).await;
            node.run(&["PEXPIRE", &name, "600000"]);
        }
    }
}

#[tokio::test]
async fn a_counters_name_cannot_be_locked() {
    let (_servers, _nodes, redlock) = three().await;
    let error = redlock.try_lock("redlock:fence:{FX}").await.unwrap_err();
    let LockError::InvalidKey(KeyError::Reserved { name }) = error else {
        panic!("{error}");
    };
    assert_eq!(name, "redlock:fence:");
}

/// Counters of 16 digits are compared exactly, up to the largest one.
#[tokio::test]
async fn large_counters_are_compared_exactly() {
    let (_servers, nodes, redlock) = three().await;
    let last = 9_007_199_254_740_991_u64;
    for node in &nodes {
        node.set(&counter("k"), &(last - 2).to_string());
    }
    for expected in [last - 1, last] {
        let guard = redlock.lock("k").fenced(true).await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), expected);
        guard.release().await;
    }
    assert_refused!(
        redlock.lock("k").fenced(true).await,
        LockError::FenceExhausted
    );
}

#[tokio::test]
async fn a_key_of_any_bytes_can_be_fenced() {
    let (_servers, nodes, redlock) = three().await;
    let longest = vec![b'x'; redlock_tokio::Key::MAX_LEN];
    for key in [&b"a}b"[..], b"{}", b"}{", b"{t}k", b"\0\xff}", &longest] {
        let mut last = None;
        for _ in 0..2 {
            let guard = redlock.lock(key).fenced(true).await.unwrap();
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            guard.release().await;
        }
    }
    let counters = nodes[0].run(&["EVAL", "return #redis.call('KEYS', 'redlock:fence:*')", "0"]);
    assert_eq!(counters, "6");
}
