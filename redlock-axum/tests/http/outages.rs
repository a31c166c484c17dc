//! Requests while a majority of real servers is down, and once it is back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use futures::future::join_all;
use redlock_axum::{LockLayer, key, path};
use redlock_tokio::{
    LockOptions, NodeState, Redlock,
    test_util::{RedisServer, RedisServers},
};
use tokio::time::sleep;

use crate::support::{
    MS, event_route,
    server::{self, LIMIT, VERSIONS, until},
};

/// How long a request waits that does not fail fast: much longer than a busy machine needs for a crowd.
const WAIT: Duration = Duration::from_secs(4);

/// How many requests come within a second.
const CROWD: usize = 100;

/// Five servers, and a service behind a layer.
struct Service {
    servers: RedisServers,
    redlock: Redlock,
    url: String,
    client: reqwest::Client,
    /// The next event. Each request has its own, so that none waits for another.
    events: AtomicUsize,
}

/// How requests have fared in an outage.
#[derive(Debug)]
struct Fared {
    median: Duration,
    slowest: Duration,
    /// How many requests waited at once.
    peak: usize,
}

impl Service {
    async fn start(options: LockOptions) -> Self {
        let servers = RedisServers::spawn(5).unwrap();
        let builder = servers.builder().node_timeout(MS(50));
        let redlock = builder.build().await.unwrap();
        let layer = LockLayer::new(redlock.clone(), key("event", path("event")));
        let app = event_route(async || "served", layer.wait(WAIT).options(options));
        let at = server::serve(app).await;
        Self {
            servers,
            redlock,
            url: format!("http://{at}/events"),
            client: VERSIONS[0](),
            events: AtomicUsize::new(0),
        }
    }

    /// The servers that fail.
    fn majority(&self) -> impl Iterator<Item = &RedisServer> {
        (0..3).map(|number| self.servers.get(number))
    }

    async fn post(&self) -> StatusCode {
        let event = self.events.fetch_add(1, SeqCst);
        let response = self.client.post(format!("{}/{event}", self.url));
        response.send().await.unwrap().status()
    }

    /// Sends many requests within a second. None gets a lock.
    async fn crowd(&self) -> Fared {
        let waiting = Arc::new(AtomicUsize::new(0));
        let requests = (0..CROWD as u64).map(|number| {
            let waiting = &waiting;
            async move {
                sleep(MS(10 * number)).await;
                let asked = Instant::now();
                let others = waiting.fetch_add(1, SeqCst);
                assert_eq!(self.post().await, 503);
                waiting.fetch_sub(1, SeqCst);
                (asked.elapsed(), others + 1)
            }
        });
        let (mut waits, peaks): (Vec<_>, Vec<_>) = join_all(requests).await.into_iter().unzip();
        waits.sort();
        Fared {
            median: waits[waits.len() / 2],
            slowest: waits[waits.len() - 1],
            peak: peaks.into_iter().max().unwrap(),
        }
    }

    async fn until_the_outage_is_known(&self) {
        let is_known = || {
            let nodes = self.redlock.nodes();
            let away = |it: &_| matches!(it, NodeState::Reconnecting(_));
            nodes.iter().filter(|it| away(&it.state)).count() == 3
        };
        while !is_known() {
            self.post().await;
        }
    }

    /// Sends requests one after the other until one is served, and returns how long that takes.
    async fn served_after(&self) -> Duration {
        let asked = Instant::now();
        while self.post().await != 200 {
            assert!(asked.elapsed() < LIMIT);
        }
        asked.elapsed()
    }
}

/// Prints how requests fare in an outage, with `--nocapture`.
#[tokio::test]
async fn requests_do_not_pile_up_in_an_outage_and_are_served_at_once_after_it() {
    let fast = LockOptions::new();
    let mut by_default = Vec::new();
    for (name, options) in [("default", fast), ("no_fail_fast", fast.no_fail_fast())] {
        let service = Service::start(options).await;
        for outage in ["killed", "frozen"] {
            for server in service.majority() {
                match outage {
                    "killed" => server.kill(),
                    _ => server.freeze(),
                }
            }
            let asked = Instant::now();
            assert_eq!(service.post().await, 503);
            let first = asked.elapsed();
            service.until_the_outage_is_known().await;
            let fared = service.crowd().await;
            for server in service.majority() {
                match outage {
                    "killed" => server.restart().unwrap(),
                    _ => server.thaw(),
                }
            }
            let served = service.served_after().await;
            println!(
                "{name}, {outage}: the first {first:?}, {fared:?}, served again after {served:?}"
            );
            if name == "default" {
                by_default.push((first, fared));
                continue;
            }
            // The control: each request waits for its lock. By default a request waits for up to 0.1 s, and longer only
            // where the machine is busy.
            assert!(
                fared.median > WAIT * 3 / 4 && fared.peak > CROWD / 2,
                "{fared:?}"
            );
            let (first_fast, fast) = by_default.remove(0);
            // Nobody knew of the outage. A server that hangs is given a second.
            assert!(
                first >= WAIT * 9 / 10 && first_fast < first,
                "{first_fast:?}"
            );
            let is_fast = fast.slowest < fared.median && 2 * fast.median < fared.median;
            assert!(is_fast && fast.peak < fared.peak, "{fast:?}");
        }
        until("all nodes vote", || {
            let nodes = service.redlock.nodes();
            nodes.iter().all(|it| it.state == NodeState::Voting)
        })
        .await;
    }
}
