//! The live state of the box office: the people who pay and wait, in all processes, and the sales, while
//! processes and the store come and go.

use redlock_kit::RedisServer;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};

use crate::support::{
    SOON, Server,
    box_office::{Fleet, assert_refused, buy, buying, state},
    eventually,
    live::Live,
};

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");

/// Each page gets the changes since its own last state.
#[tokio::test]
async fn a_page_that_opens_while_a_buyer_leaves_is_corrected() {
    let server = Server::start(TICKETS, &["--payment", "1000s", "--wait", "20ms"], None);
    let ada = buying(&server.url, "Ada");
    let mut first = Live::open(&server.url).await;
    first.shows_line(7, &["Ada"], &[]).await;
    for _ in 0..20 {
        let opened = async {
            let mut page = Live::open(&server.url).await;
            page.shows_line(7, &["Ada"], &[]).await;
        };
        let (turned_away, ()) = tokio::join!(buy(&server.url, 7, "Zed"), opened);
        assert_refused(&turned_away, StatusCode::LOCKED);
    }
    ada.abort();
}

#[tokio::test]
async fn every_process_shows_the_people_in_line_until_they_leave_or_their_process_is_killed() {
    let mut fleet = Fleet::start(TICKETS, &["--payment", "1000s", "--wait", "1000s"]);
    let [here, there] = [fleet.url(0), fleet.url(1)];
    let mut live = Live::open(there).await;
    live.shows_line(7, &[], &[]).await;
    let ada = buying(here, "Ada");
    live.shows_line(7, &["Ada"], &[]).await;
    let bob = buying(here, "Bob");
    live.shows_line(7, &["Ada"], &["Bob"]).await;
    let zoe = buying(there, "Zo%C3%AB");
    // Both processes show them in the order of their arrival.
    for url in [there, here] {
        let mut page = Live::open(url).await;
        page.shows_line(7, &["Ada"], &["Bob", "Zo\u{eb}"]).await;
    }
    let state = state(here).await;
    assert_eq!(state["taken"]["7"]["paying"], json!(["Ada"]), "{state}");

    zoe.abort();
    live.shows_line(7, &["Ada"], &["Bob"]).await;
    ada.abort(); // before their connections break
    bob.abort();
    drop(fleet.servers.remove(0)); // with SIGKILL
    live.shows_line(7, &[], &[]).await;
}

#[tokio::test]
async fn the_service_survives_an_outage_of_the_store() {
    let fleet = Fleet::start(TICKETS, &["--payment", "0ms"]);
    let url = fleet.url(0);
    let mut live = Live::open(url).await;
    let store = fleet.data.get(0);
    let is_away = |state: &Value| state["store_answers"] == false;

    // The store is down, and then it hangs.
    for away in [RedisServer::kill, RedisServer::freeze] {
        buy(url, 7, "Ada").await;
        live.shows_owner(7, Some("Ada")).await;
        away(store);
        let state = live.shows("that the store is away", is_away).await;
        let last = &state["taken"]["7"]["owner"];
        assert_eq!(last, "Ada", "as it was when the store answered last");
        let mut opened = Live::open(url).await;
        opened.shows("that the store is away", is_away).await;
        let refused = buy(url, 8, "Ada").await;
        assert_refused(&refused, StatusCode::SERVICE_UNAVAILABLE);
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["type"], "urn:tickets:problem:store");
        let unknown = reqwest::get(format!("{url}/events/rock/seats")).await;
        let status = unknown.unwrap().status();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);

        store.restart().unwrap(); // forgets all sales
        eventually("sales go on, in the other process too", async || {
            let status = buy(fleet.url(1), 9, "Bob").await.status();
            status.is_success().then_some(())
        })
        .await;
        live.shows_owner(9, Some("Bob")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_sales_and_not_for_pages() {
    let server = Server::start(TICKETS, &["--payment", "2s", "--wait", "1000s"], None);
    let mut page = Live::open(&server.url).await;
    let ada = buying(&server.url, "Ada");
    page.shows_line(7, &["Ada"], &[]).await;
    let stopped = timeout(SOON, spawn_blocking(|| server.end())).await;
    stopped.expect("it stops while pages are open").unwrap();
    assert_eq!(ada.await.unwrap().status(), StatusCode::CREATED);
    while page.next().await.is_some() {} // ended, and not broken off
}
