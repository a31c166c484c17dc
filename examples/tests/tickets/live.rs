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

/// A payment that lasts as long as the test.
const LOOK: &[&str] = &["--payment", "1000s", "--wait", "1000s"];

/// Each page gets the changes since its own last state.
#[tokio::test]
async fn a_page_that_opens_while_a_buyer_leaves_is_corrected() {
    let server = Server::start(TICKETS, &["--payment", "1000s", "--wait", "20ms"], None);
    let ada = buying(&server.url, "Ada");
    let mut first = Live::open(&server.url).await;
    first.shows_line(7, &["Ada"], &[]).await;
    for _ in 0..20 {
        let turned_away = buy(&server.url, 7, "Zed");
        let opened = async {
            let mut page = Live::open(&server.url).await;
            page.shows_line(7, &["Ada"], &[]).await;
            page
        };
        let (turned_away, _page) = tokio::join!(turned_away, opened);
        assert_refused(&turned_away, StatusCode::LOCKED);
    }
    ada.abort();
}

#[tokio::test]
async fn every_process_shows_the_people_in_line() {
    let fleet = Fleet::start(TICKETS, LOOK);
    let [here, there] = [fleet.url(0), fleet.url(1)];
    let mut live = Live::open(there).await;
    live.shows_line(7, &[], &[]).await;

    let ada = buying(here, "Ada");
    live.shows_line(7, &["Ada"], &[]).await;
    let bob = buying(here, "Bob");
    live.shows_line(7, &["Ada"], &["Bob"]).await;
    let zoe = buying(there, "Zo%C3%AB");
    live.shows_line(7, &["Ada"], &["Bob", "Zo\u{eb}"]).await;
    // Both processes show them in the order of their arrival.
    let mut elsewhere = Live::open(here).await;
    elsewhere
        .shows_line(7, &["Ada"], &["Bob", "Zo\u{eb}"])
        .await;
    let state = state(here).await;
    assert_eq!(state["taken"]["7"]["paying"], json!(["Ada"]), "{state}");

    // A buyer that disconnects leaves the line.
    bob.abort();
    live.shows_line(7, &["Ada"], &["Zo\u{eb}"]).await;
    zoe.abort();
    live.shows_line(7, &["Ada"], &[]).await;
    ada.abort();
}

#[tokio::test]
async fn a_buyer_that_disconnects_while_paying_gets_the_seat() {
    let fleet = Fleet::start(TICKETS, &["--payment", "2s"]);
    let mut live = Live::open(fleet.url(1)).await;
    let ada = buying(fleet.url(0), "Ada");
    live.shows_line(7, &["Ada"], &[]).await;
    ada.abort();
    live.shows_owner(7, Some("Ada")).await;
}

#[tokio::test]
async fn the_people_of_a_killed_process_are_forgotten() {
    let mut fleet = Fleet::start(TICKETS, LOOK);
    let mut live = Live::open(fleet.url(1)).await;
    let ada = buying(fleet.url(0), "Ada");
    live.shows_line(7, &["Ada"], &[]).await;
    let bob = buying(fleet.url(0), "Bob");
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
    let answers = |state: &Value| state["store_answers"] == true;
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
        live.shows("that the store is back", answers).await;
        eventually("sales go on, in the other process too", async || {
            let status = buy(fleet.url(1), 9, "Bob").await.status();
            status.is_success().then_some(())
        })
        .await;
        live.shows_owner(9, Some("Bob")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_pages_do_not_delay_the_stop() {
    let server = Server::start(TICKETS, &["--wait", "1000s"], None);
    let mut pages = Vec::new();
    for _ in 0..3 {
        let mut live = Live::open(&server.url).await;
        live.next().await.expect("a first state");
        pages.push(live);
    }
    let stopped = timeout(SOON, spawn_blocking(|| server.end())).await;
    stopped.expect("it stops while pages are open").unwrap();
    for mut page in pages {
        assert_eq!(page.next().await, None, "ended, and not broken off");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_is_finished_before_the_server_stops() {
    let server = Server::start(TICKETS, &["--payment", "2s"], None);
    let mut live = Live::open(&server.url).await;
    let ada = buying(&server.url, "Ada");
    live.shows_line(7, &["Ada"], &[]).await;
    let stopped = spawn_blocking(|| server.end());
    assert_eq!(ada.await.unwrap().status(), StatusCode::CREATED);
    stopped.await.unwrap();
}
