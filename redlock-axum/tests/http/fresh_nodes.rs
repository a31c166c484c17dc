//! A route over nodes that have just started and may not vote yet.

use std::time::Duration;

use axum::{Router, routing::post as routed_post};
use futures::future::BoxFuture;
use redlock_axum::{LockLayer, key, path};
use redlock_tokio::{
    Clock, LockOptions, MemoryNode, NodeError, Redlock, ServerInfo,
    node::{Answer, Command, Node, RunId, Server, Session},
};
use tokio::time::Instant;

use crate::support::{MS, post, problem, terms, text};

/// A node in memory that reports its first connection as its start.
#[derive(Clone)]
struct Fresh {
    node: MemoryNode,
    letter: u8,
}

impl Node for Fresh {
    fn address(&self) -> &str {
        self.node.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Session>) })
    }
}

impl Session for Fresh {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        self.node.execute(batch)
    }

    fn server(&self) -> Server {
        let run_id = RunId::new([self.letter; RunId::LEN]);
        Server::Known(ServerInfo::new(run_id, Duration::ZERO))
    }
}

async fn app(wait: Duration, options: LockOptions) -> Router {
    let nodes = (b'a'..=b'c').map(|letter| Fresh {
        node: MemoryNode::with_clock(Clock::tokio()),
        letter,
    });
    let builder = Redlock::builder().custom_nodes(nodes).clock(Clock::tokio());
    let redlock = builder.build().await.unwrap();
    let layer = LockLayer::new(redlock, key("event", path("event")));
    let layer = layer.wait(wait).options(options);
    let route = routed_post(async || "served").route_layer(layer);
    Router::new().route("/events/{event}", route)
}

/// The nodes vote 10.1 s after their start.
#[tokio::test(start_paused = true)]
async fn the_retry_after_says_when_the_nodes_will_vote() {
    let at_once = LockOptions::new();
    let at_the_end = at_once.fail_fast(false);
    for (wait, options, waited) in [
        (5000, at_once, 0),
        (0, at_once, 0),
        (600, at_the_end, 600),
        (5000, at_the_end, 5000),
    ] {
        let app = app(MS(wait), options).await;
        let start = Instant::now();
        let response = post(&app, "/events/rock").await;
        assert_eq!(start.elapsed(), MS(waited));
        let left = 10_102 - waited;
        let body = problem(response, 503, "unavailable").await;
        let (handler_ran, retry_after) = terms(&body);
        assert!(!handler_ran);
        // Up to a second is added, so that clients do not all come back at once.
        let retry_after = retry_after.unwrap();
        assert!((left..=left + 1000).contains(&retry_after), "{retry_after}");
        tokio::time::sleep(MS(retry_after)).await;
        assert_eq!(text(post(&app, "/events/rock").await).await, "served");
    }
}
