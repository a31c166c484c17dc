//! Starts the example servers as a user would, sends requests to them, and stops them.

use std::{process::Command, time::Duration};

use redlock_kit::RedisServers;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{Server, eventually};

async fn pay(url: &str, key: Option<&str>, amount: u64) -> Response {
    let request = Client::new().post(format!("{url}/payments"));
    let request = match key {
        Some(key) => request.header("Idempotency-Key", key),
        None => request,
    };
    let request = request.json(&json!({ "amount": amount }));
    request.send().await.unwrap()
}

async fn payments_charge_once(nodes: Option<&RedisServers>) {
    let server = Server::start(env!("CARGO_BIN_EXE_payments"), &[], nodes);
    let url = &server.url;

    // The same payment, sixteen times at once.
    let mut requests = JoinSet::new();
    for _ in 0..16 {
        let url = url.clone();
        requests.spawn(async move {
            let response = pay(&url, Some("\"a\""), 5).await;
            (response.status(), response.json::<Value>().await.unwrap())
        });
    }
    let (statuses, receipts): (Vec<_>, Vec<_>) = requests.join_all().await.into_iter().unzip();
    let count = |wanted| statuses.iter().filter(|&&status| status == wanted).count();
    assert_eq!(count(StatusCode::CREATED), 1, "{statuses:?}");
    assert_eq!(count(StatusCode::OK), 15, "{statuses:?}");
    let receipt = json!({ "charge": 1, "amount": 5 });
    assert!(receipts.iter().all(|it| *it == receipt), "{receipts:?}");

    // Once more, later; and other payments.
    assert_eq!(pay(url, Some("a"), 5).await.status(), StatusCode::OK);
    assert_eq!(pay(url, Some("b"), 5).await.status(), StatusCode::CREATED);
    let other_amount = pay(url, Some("a"), 6).await.status();
    assert_eq!(other_amount, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(pay(url, None, 5).await.status(), StatusCode::BAD_REQUEST);

    let charges = reqwest::get(format!("{url}/charges")).await.unwrap();
    assert_eq!(charges.text().await.unwrap(), "2");
    server.end();
}

#[tokio::test]
async fn payments_charge_once_on_embedded_and_on_real_nodes() {
    payments_charge_once(None).await;
    payments_charge_once(Some(&RedisServers::spawn(5).unwrap())).await;
}

#[tokio::test]
async fn a_payment_completes_without_its_client() {
    let arguments = ["--charge", "1s"];
    let server = Server::start(env!("CARGO_BIN_EXE_payments"), &arguments, None);
    let impatient = Client::new()
        .post(format!("{}/payments", server.url))
        .header("Idempotency-Key", "a")
        .json(&json!({ "amount": 5 }))
        .timeout(Duration::from_millis(300));
    assert!(impatient.send().await.unwrap_err().is_timeout());

    // The same request comes again during the first charge. It waits, and finds the receipt.
    let again = pay(&server.url, Some("a"), 5).await;
    assert_eq!(again.status(), StatusCode::OK);
    let charges = reqwest::get(format!("{}/charges", server.url)).await;
    assert_eq!(charges.unwrap().text().await.unwrap(), "1");
}

async fn insert(table: &str) -> Response {
    Client::new().post(table).send().await.unwrap()
}

async fn exports_are_consistent(nodes: Option<&RedisServers>) {
    let arguments = ["--rows", "8", "--row", "50ms"];
    let server = Server::start(env!("CARGO_BIN_EXE_streaming"), &arguments, nodes);
    let table = format!("{}/tables/users", server.url);

    let mut export = reqwest::get(&table).await.unwrap();
    let first = export.chunk().await.unwrap().unwrap();
    assert_eq!(first, "users: row 0\n");
    // A row that is inserted during the export does not show in it ..
    let inserting = tokio::spawn(async move { insert(&table).await.text().await.unwrap() });
    let rest = export.text().await.unwrap();
    assert_eq!(rest.lines().count(), 7, "{rest}");
    assert_eq!(inserting.await.unwrap(), "users: added row 8\n");
    // .. but shows in the next export.
    let next = reqwest::get(format!("{}/tables/users", server.url)).await;
    assert_eq!(next.unwrap().text().await.unwrap().lines().count(), 9);
}

#[tokio::test]
async fn exports_are_consistent_on_embedded_and_on_real_nodes() {
    exports_are_consistent(None).await;
    exports_are_consistent(Some(&RedisServers::spawn(5).unwrap())).await;
}

/// Starts an export of a thousand seconds. An insert waits for five seconds only.
#[tokio::test]
async fn a_client_that_goes_away_ends_its_export() {
    let arguments = ["--rows", "10000", "--row", "100ms", "--at-most", "1000s"];
    let server = Server::start(env!("CARGO_BIN_EXE_streaming"), &arguments, None);
    let table = format!("{}/tables/users", server.url);
    let mut export = reqwest::get(&table).await.unwrap();
    export.chunk().await.unwrap().unwrap();
    drop(export);
    assert_eq!(insert(&table).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_export_that_takes_too_long_is_cut_off() {
    let arguments = ["--rows", "10000", "--row", "100ms", "--at-most", "500ms"];
    let server = Server::start(env!("CARGO_BIN_EXE_streaming"), &arguments, None);
    let table = format!("{}/tables/users", server.url);
    let export = reqwest::get(&table).await.unwrap();
    assert_eq!(insert(&table).await.status(), StatusCode::OK);
    // The client notices that the table is incomplete.
    export.text().await.unwrap_err();
}

/// Starts the server, lets it begin with an order, and disconnects the client.
async fn abandoned_order(arguments: &[&str], nodes: Option<&RedisServers>) -> Server {
    let mut server = Server::start(env!("CARGO_BIN_EXE_graceful"), arguments, nodes);
    let order = format!("{}/orders/7", server.url);
    let client = tokio::spawn(async move { insert(&order).await });
    // The runtime runs on, so that the request is sent.
    tokio::task::block_in_place(|| server.wait_for("order 7: begun"));
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    server
}

fn assert_has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|it| it == line), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_waits_for_handlers_without_clients() {
    let nodes = RedisServers::spawn(5).unwrap();
    for nodes in [None, Some(&nodes)] {
        let server = abandoned_order(&["--work", "2s"], nodes).await;
        let expected = [
            "stopping",
            "all connections are closed",
            "order 7: done",
            "abandoned handlers: 0",
            "abandoned locks: 0",
            "abandoned releases: 0",
        ];
        assert_eq!(server.end(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_prints_the_abandoned_handlers() {
    let arguments = ["--work", "1000s", "--patience", "500ms"];
    let lines = abandoned_order(&arguments, None).await.end();
    assert_has(&lines, "abandoned handlers: 1");
    assert_has(&lines, "abandoned locks: 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_stops_at_once_after_a_second_signal() {
    let arguments = ["--work", "1000s", "--patience", "20s"];
    let mut server = abandoned_order(&arguments, None).await;
    server.ask_to_stop();
    server.wait_for("stopping");
    sleep(Duration::from_millis(1500)).await; // signals that come at once are one
    let (status, lines) = server.stop();
    assert_eq!(status.code(), Some(1), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_prints_the_abandoned_releases() {
    let nodes = RedisServers::spawn(5).unwrap();
    let arguments = ["--work", "1s", "--releases", "500ms"];
    let server = abandoned_order(&arguments, Some(&nodes)).await;
    nodes.get(0).kill(); // one of five: the lock is still held, and this node's release is owed
    let lines = server.end();
    for line in [
        "order 7: done",
        "abandoned locks: 0",
        "abandoned releases: 1",
    ] {
        assert_has(&lines, line);
    }
}

/// The servers are fresh, so the locks are not ready before `max_ttl` (10 s) is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_alive_before_its_locks_are_ready_and_in_an_outage() {
    let nodes = RedisServers::spawn(5).unwrap();
    let server = Server::start(env!("CARGO_BIN_EXE_service"), &[], Some(&nodes));
    let url = server.url.clone();
    let get = async |path: &str| {
        let response = reqwest::get(format!("{url}{path}")).await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let becomes = async |wanted: StatusCode| {
        eventually("the locks change", async || {
            assert_eq!(get("/livez").await.0, StatusCode::OK);
            let (status, text) = get("/readyz").await;
            (status == wanted).then_some(text)
        })
        .await
    };
    let pay = async |order: &str| {
        let payment = format!("{url}/orders/{order}/payment");
        insert(&payment).await.status()
    };
    let not_yet = becomes(StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(not_yet.contains("a majority votes in"), "{not_yet}");
    becomes(StatusCode::OK).await;
    assert_eq!(pay("7").await, StatusCode::OK);
    assert_eq!(pay("seven").await, StatusCode::BAD_REQUEST);
    (0..3).for_each(|node| nodes.get(node).kill());
    becomes(StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(pay("7").await, StatusCode::SERVICE_UNAVAILABLE);
    server.end();
}

#[test]
fn the_service_says_which_variable_is_missing() {
    let mut service = Command::new(env!("CARGO_BIN_EXE_service"));
    let service = service.env("LISTEN", "127.0.0.1:0");
    let output = service.env_remove("REDLOCK_NODES").output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("set REDLOCK_NODES"), "{errors}");
}
