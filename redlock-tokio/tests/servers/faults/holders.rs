//! The fault matrix, rows 34, 35 and 37: holders that are stopped or blocked, and guards that are dropped in unusual
//! places. Row 39 is in `servers/promises.rs`.

use std::{
    thread,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use redlock_tokio::{FencingToken, Redlock};
use tokio::runtime::Runtime;

use crate::{
    fleet::{clis, fleet},
    support::{Cli, Other, eventually, role, trusting},
};

const TTL: Duration = Duration::from_millis(600);

/// A store that refuses writes with a smaller fencing token than the largest one so far.
struct Store(Cli);

impl Store {
    fn write(&self, token: u64, value: &str) -> bool {
        let script = "if tonumber(redis.call('GET', 'fence') or '0') > tonumber(ARGV[1]) then \
                        return 0 \
                      end \
                      redis.call('SET', 'fence', ARGV[1]) \
                      redis.call('SET', 'value', ARGV[2]) \
                      return 1";
        self.0
            .run(&["EVAL", script, "0", &token.to_string(), value])
            == "1"
    }
}

#[tokio::test]
async fn row_34_holder_stopped_longer_than_ttl() {
    const TEST: &str = "faults::holders::row_34_holder_stopped_longer_than_ttl";
    if let Some(urls) = role() {
        // The other process prints its token, and after its stop whether it takes its lock for valid.
        let redlock = trusting(urls.split(',')).build().await.unwrap();
        let lock = redlock.lock("k").ttl(TTL).fenced(true);
        let guard = lock.await.unwrap();
        println!("token {}", guard.fencing_token().unwrap().get());
        // The process is stopped here. It goes on after a line of input.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return println!("believes {}", guard.is_valid());
    }
    let servers = RedisServers::spawn(4).unwrap();
    let store = Store(Cli::of(servers.get(3)));
    let urls = &servers.urls()[..3];
    let mut other = Other::start(TEST, &urls.join(","));
    let redlock = trusting(urls).build().await.unwrap();
    let token: u64 = other.printed("token").parse().unwrap();
    let stopped_at = Instant::now();
    other.worker.freeze();

    let is_taken = redlock.try_lock("k").await.is_err();
    // On a busy machine the lock may have expired by now.
    assert!(is_taken || stopped_at.elapsed() > TTL / 2, "it is held");
    let next = redlock.lock("k").fenced(true).wait(10 * TTL).await;
    let next = next.expect("after the ttl");
    let next_token = next.fencing_token().map(FencingToken::get).unwrap();
    assert!(store.write(next_token, "next"));
    other.worker.thaw();
    other.worker.tell("go on").unwrap();
    assert_eq!(other.printed("believes"), "false", "after its stop");
    assert!(
        !store.write(token, "stale"),
        "a stale holder that writes anyway is refused"
    );
    assert_eq!(store.0.get("value").as_deref(), Some("next"));
    let status = other.worker.end(Duration::from_secs(20)).unwrap();
    assert!(status.expect("it has ended").success());
    assert!(next.is_valid(), "the stale holder has not released it");
}

#[tokio::test]
async fn row_35_executor_blocked() {
    let (_servers, [redlock, other]) = fleet(3).await;
    let guard = redlock.lock("k").ttl(TTL).await.unwrap();
    thread::sleep(TTL);
    // No timer has fired and no task has run meanwhile.
    assert!(!guard.is_valid(), "the clock says so");
    assert_eq!(guard.remaining(), Duration::ZERO);
    let next = other.lock("k").await.expect("its keys have expired");
    guard.lost().await;
    drop(guard);
    let extended = next.extend().await;
    extended.expect("untouched by the first holder's release");
}

fn runtime_and_lock(servers: &RedisServers) -> (Runtime, Redlock) {
    let runtime = Runtime::new().unwrap();
    let redlock = runtime.block_on(servers.builder().build()).unwrap();
    (runtime, redlock)
}

#[test]
fn row_37_guard_dropped_outside_a_runtime() {
    let servers = RedisServers::spawn(3).unwrap();
    let (runtime, redlock) = runtime_and_lock(&servers);
    let guard = runtime.block_on(redlock.lock("k").into_future()).unwrap();
    thread::spawn(move || drop(guard)).join().expect("no panic");
    let node = Cli::of(servers.get(0));
    runtime.block_on(eventually("it is released", || node.get("k").is_none()));
}

#[tokio::test]
async fn row_37_guard_dropped_in_a_panic() {
    let (servers, [redlock]) = fleet(3).await;
    let guard = redlock.lock("k").await.unwrap();
    let task = tokio::spawn(async move {
        let _guard = guard;
        panic!("this task panics on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    let node = Cli::of(servers.get(0));
    eventually("it is released", || node.get("k").is_none()).await;
}

#[test]
fn row_37_guard_dropped_after_the_runtime_has_gone() {
    let servers = RedisServers::spawn(3).unwrap();
    let (runtime, redlock) = runtime_and_lock(&servers);
    let guard = runtime.block_on(redlock.lock("k").into_future()).unwrap();
    let nodes = clis(&servers);
    let left = || nodes.iter().filter(|it| it.get("k").is_some()).count();
    runtime.block_on(eventually("it is set everywhere", || left() == 3));
    drop(runtime);
    assert!(!guard.is_valid(), "no task renews it");
    drop(guard);
    let other = Runtime::new().unwrap();
    let report = other.block_on(redlock.shutdown(None));
    // A lane may have delivered a release just before the runtime ended.
    assert!(report.abandoned >= left(), "{report:?}, {} left", left());
    assert!(report.abandoned > 0, "{report:?}");
}
