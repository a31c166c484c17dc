//! The keys that a layer sets on the nodes, which clients in other languages must set too. `MIGRATING.md` of
//! `redlock-tokio` has a table of them.

use std::collections::BTreeMap;

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::post};
use redlock_axum::{LockLayer, key, path};
use redlock_tokio::{Clock, Durability, MemoryNode, Redlock};

use crate::support::send;

/// Returns the table's rows for this layer: the path of a request with the key on the wire.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let page = include_str!("../../../redlock-tokio/MIGRATING.md");
    let rows = page
        .lines()
        .filter(|line| line.contains("`POST /accounts/"));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')));
    let cells = cells.map(|row| row.skip(2).take(2).collect::<Vec<_>>());
    let pairs = cells.map(|row| (row[0].trim_start_matches("POST "), row[1]));
    pairs.collect()
}

#[tokio::test(start_paused = true)]
async fn a_layer_sets_the_documented_keys() {
    let documented = documented();
    assert_eq!(documented.len(), 2, "{documented:?}");
    for (uri, wire_key) in documented {
        let node = MemoryNode::new();
        let builder = Redlock::builder().custom_nodes([node.clone()]);
        let builder = builder.clock(Clock::tokio()).prefix("lock:");
        let redlock = builder
            .durability(Durability::AssumedForTests)
            .build()
            .await
            .unwrap();
        let is_set = async move || match node.contains(wire_key) && node.len() == 1 {
            true => StatusCode::OK,
            false => StatusCode::IM_A_TEAPOT,
        };
        let app = Router::new()
            .route("/accounts/{account}", post(is_set))
            .route_layer(LockLayer::new(redlock, key("account", path("account"))));
        let response = send(&app, Request::post(uri).body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK, "{uri}: {wire_key}");
    }
}
