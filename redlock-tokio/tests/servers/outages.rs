//! The first requests of an outage of real servers, by the real clock.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{LockError, LockOptions, Redlock};

use crate::support::{MS, built, kinds::KINDS, states::all_vote};

/// Returns how long after the beginning of the outage each kind of request is refused.
async fn refusals(redlock: &Redlock) -> Vec<Duration> {
    let begin = Instant::now();
    let requests = KINDS.iter().map(async |kind| {
        assert_refused!((kind.lock)(redlock).await, LockError::NoQuorum(_));
        begin.elapsed()
    });
    join_all(requests).await
}

#[tokio::test]
async fn the_first_requests_of_an_outage_are_refused_once_connecting_has_failed() {
    let servers = RedisServers::spawn(3).unwrap();
    let fail_fast = LockOptions::new().fail_fast(true);
    let redlock = built(servers.builder().options(fail_fast).node_timeout(MS(50))).await;
    type Change = fn(&RedisServer);
    let restart: Change = |it| it.restart().unwrap();
    let outages: [(Change, Change, _); 2] = [
        (RedisServer::kill, restart, MS(1000)),
        // A server that hangs has a second before it is connected to again.
        (RedisServer::freeze, RedisServer::thaw, MS(2500)),
    ];
    for (begin, end, limit) in outages {
        servers.iter().take(2).for_each(begin);
        for (kind, time) in KINDS.iter().zip(refusals(&redlock).await) {
            assert!(time < limit, "{}: {time:?} of {limit:?}", kind.name);
        }
        servers.iter().take(2).for_each(end);
        all_vote(&redlock).await;
    }
}
