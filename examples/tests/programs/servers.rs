//! Starts the example servers as a user would, sends requests to them, and stops them.

use std::{process::Command, time::Duration};

use redlock_kit::RedisServers;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{Server, eventually};

#[tokio::test]
async fn payments_charge_once_even_if_the_client_goes_away() {
    let arguments = ["--charge", "1s"];
    let server = Server::start(env!("CARGO_BIN_EXE_payments"), &arguments, None);
    let url = server.url.clone();
    let pay = |key: &str, amount: u64| {
        let request = Client::new().post(format!("{url}/payments"));
        let request = request.header("Idempotency-Key", key);
        request.json(&json!({ "amount": amount }))
    };
    let status = async |key, amount| pay(key, amount).send().await.unwrap().status();

    // The same request comes again during the first charge. It waits, and finds the receipt.
    let impatient = pay("a", 5).timeout(Duration::from_millis(300));
    assert!(impatient.send().await.unwrap_err().is_timeout());
    assert_eq!(status("\"a\"", 5).await, StatusCode::OK);
    assert_eq!(status("a", 6).await, StatusCode::UNPROCESSABLE_ENTITY);
    let keyless = Client::new().post(format!("{url}/payments"));
    let keyless = keyless.json(&json!({ "amount": 5 })).send().await.unwrap();
    assert_eq!(keyless.status(), StatusCode::BAD_REQUEST);

    // The same payment, sixteen times at once.
    let mut requests = JoinSet::new();
    for _ in 0..16 {
        let request = pay("b", 7).send();
        requests.spawn(async move {
            let response = request.await.unwrap();
            (response.status(), response.json::<Value>().await.unwrap())
        });
    }
    let (statuses, receipts): (Vec<_>, Vec<_>) = requests.join_all().await.into_iter().unzip();
    let count = |wanted| statuses.iter().filter(|&&status| status == wanted).count();
    assert_eq!(count(StatusCode::CREATED), 1, "{statuses:?}");
    assert_eq!(count(StatusCode::OK), 15, "{statuses:?}");
    let receipt = json!({ "charge": 2, "amount": 7 });
    assert!(receipts.iter().all(|it| *it == receipt), "{receipts:?}");
    let charges = reqwest::get(format!("{url}/charges")).await.unwrap();
    assert_eq!(charges.text().await.unwrap(), "2");
    server.end();
}

#[tokio::test]
async fn a_row_that_is_inserted_during_an_export_shows_in_the_next() {
    let arguments = ["--rows", "8", "--row", "50ms"];
    let server = Server::start(env!("CARGO_BIN_EXE_streaming"), &arguments, None);
    let table = format!("{}/tables/users", server.url);
    let mut export = reqwest::get(&table).await.unwrap();
    let first = export.chunk().await.unwrap().unwrap();
    assert_eq!(first, "users: row 0\n");
    let inserting = tokio::spawn(insert(table.clone()));
    let rest = export.text().await.unwrap();
    assert_eq!(rest.lines().count(), 7, "{rest}");
    let inserted = inserting.await.unwrap().text().await.unwrap();
    assert_eq!(inserted, "users: added row 8\n");
    let next = reqwest::get(&table).await.unwrap().text().await.unwrap();
    assert_eq!(next.lines().count(), 9, "{next}");
}

#[tokio::test]
async fn an_export_that_takes_too_long_is_cut_off() {
    let arguments = ["--rows", "10000", "--row", "100ms", "--at-most", "500ms"];
    let server = Server::start(env!("CARGO_BIN_EXE_streaming"), &arguments, None);
    let table = format!("{}/tables/users", server.url);
    let export = reqwest::get(&table).await.unwrap();
    assert_eq!(insert(table).await.status(), StatusCode::OK);
    // The client notices that the table is incomplete.
    export.text().await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_waits_for_a_handler_without_a_client_and_counts_the_releases_that_it_owes() {
    let nodes = RedisServers::spawn(5).unwrap();
    let arguments = ["--work", "1s", "--releases", "500ms"];
    let server = abandoned_order(&arguments, Some(&nodes)).await;
    nodes.get(0).kill(); // one of five: the lock is still held
    let expected = [
        "stopping",
        "all connections are closed",
        "order 7: done",
        "abandoned handlers: 0",
        "abandoned locks: 0",
        "abandoned releases: 1",
        "their keys expire within a ttl",
    ];
    assert_eq!(server.end(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_counts_the_handlers_and_locks_that_it_abandons() {
    let arguments = ["--work", "1000s", "--patience", "500ms"];
    let lines = abandoned_order(&arguments, None).await.end();
    for line in ["abandoned handlers: 1", "abandoned locks: 1"] {
        assert!(lines.iter().any(|it| it == line), "{lines:?}");
    }
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
        insert(format!("{url}/orders/{order}/payment"))
            .await
            .status()
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

/// Sends a request without a body.
async fn insert(url: String) -> Response {
    Client::new().post(url).send().await.unwrap()
}

/// Starts the server, lets it begin with an order, and disconnects the client.
async fn abandoned_order(arguments: &[&str], nodes: Option<&RedisServers>) -> Server {
    let mut server = Server::start(env!("CARGO_BIN_EXE_graceful"), arguments, nodes);
    let client = tokio::spawn(insert(format!("{}/orders/7", server.url)));
    // The runtime runs on, so that the request is sent.
    tokio::task::block_in_place(|| server.wait_for("order 7: begun"));
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    server
}
