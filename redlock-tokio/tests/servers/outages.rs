//! The first requests of an outage of real servers, by the real clock.

use std::{
    env,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{Durability, LockError, LockOptions, Redlock};

use crate::support::{MS, kinds::KINDS, states::all_vote};

/// Returns how long after the beginning of the outage each kind of request is refused.
async fn refusals(redlock: &Redlock) -> Vec<Duration> {
    let begin = Instant::now();
    let requests = KINDS.iter().map(async |kind| {
        assert_refused!((kind.lock)(redlock).await, LockError::NoQuorum(_));
        begin.elapsed()
    });
    join_all(requests).await
}

/// Prints the longest of the times with `--nocapture`. `REFUSALS` is how often each is measured.
#[tokio::test]
async fn the_first_requests_of_an_outage_are_refused_once_connecting_has_failed() {
    let tries = env::var("REFUSALS").map_or(2, |it| it.parse().unwrap());
    let servers = RedisServers::spawn(3).unwrap();
    let builder = servers.builder().durability(Durability::AssumedForTests);
    let builder = builder.options(LockOptions::new().fail_fast(true));
    let redlock = builder.node_timeout(MS(50)).build().await.unwrap();
    type Change = fn(&RedisServer);
    let restart: Change = |it| it.restart().unwrap();
    let outages: [(_, Change, Change, _); 2] = [
        ("kill -9", RedisServer::kill, restart, MS(1000)),
        // A server that hangs has a second before it is connected to again.
        ("SIGSTOP", RedisServer::freeze, RedisServer::thaw, MS(2500)),
    ];
    for (name, begin, end, limit) in outages {
        let mut longest = [Duration::ZERO; KINDS.len()];
        for _ in 0..tries {
            let down = || (0..2).map(|number| servers.get(number));
            down().for_each(begin);
            for (longest, time) in longest.iter_mut().zip(refusals(&redlock).await) {
                *longest = time.max(*longest);
            }
            down().for_each(end);
            all_vote(&redlock).await;
        }
        for (kind, longest) in KINDS.iter().zip(longest) {
            println!("{name}, {}: {longest:?}", kind.name);
            assert!(longest < limit, "{name}, {}: {longest:?}", kind.name);
        }
    }
}
