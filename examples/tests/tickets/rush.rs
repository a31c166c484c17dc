//! The demonstration with twenty buyers, with the lock and without it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    Server,
    box_office::{Fleet, assert_refused, state},
    live::Live,
};

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");
const WITH_LOCK: &str = "demo:with-lock";
const WITHOUT_LOCK: &str = "demo:without-lock";

#[tokio::test]
async fn the_lock_sells_the_seat_once_and_its_absence_more_than_once() {
    let fleet = Fleet::start(TICKETS, &[]);
    // In one embedded process, too, even if the real sales have no lock.
    let alone = Server::start(TICKETS, &["--no-lock"], None);
    for url in [fleet.url(0), &alone.url] {
        let (outcome, answers) = rush(url, "with-lock").await;
        assert_eq!(outcome["sold"], 1, "{outcome}");
        assert_eq!(answers, BTreeMap::from([(201, 1), (409, 19)]), "{outcome}");
        let buyers = outcome["buyers"].as_array().unwrap();
        let bought = buyers.iter().find(|it| it["status"] == 201).unwrap();
        assert_eq!(outcome["owner"], bought["name"], "{outcome}");

        let (outcome, answers) = rush(url, "without-lock").await;
        let sold = answers.get(&201).copied().unwrap_or_default();
        assert!(sold > 1, "{outcome}");
        assert_eq!(outcome["sold"], sold, "{outcome}");

        // The real hall is not affected.
        let state = state(url).await;
        assert_eq!(state["taken"], json!({}), "{state}");
        assert_eq!(state["sold_twice"], 0, "{state}");
    }
}

#[tokio::test]
async fn every_page_shows_the_buyers_of_one_rush_at_a_time() {
    let fleet = Fleet::start(TICKETS, &[]);
    let [here, there] = [fleet.url(0), fleet.url(1)];
    for (hall, shown, paying) in [
        ("with-lock", WITH_LOCK, 1),
        ("without-lock", WITHOUT_LOCK, 20),
    ] {
        let mut live = Live::of_hall(there, shown).await;
        let since = Instant::now();
        let sent = tokio::spawn({
            let here = here.to_owned();
            async move { send(&here, hall).await.status() }
        });
        let count = |people: &Value| people.as_array().map_or(0, Vec::len);
        live.shows("all of them", |state| {
            let seat = &state["taken"]["1"];
            count(&seat["paying"]) == paying && count(&seat["waiting"]) == 20 - paying
        })
        .await;
        for url in [here, there] {
            assert_refused(&send(url, hall).await, StatusCode::LOCKED);
        }
        assert_eq!(sent.await.unwrap(), StatusCode::OK);
        let least = Duration::from_millis(1500);
        assert!(since.elapsed() >= least, "no load tool");
        live.shows("that they are gone", |state| {
            let seat = &state["taken"]["1"];
            count(&seat["paying"]) + count(&seat["waiting"]) == 0
        })
        .await;
    }
}

#[tokio::test]
async fn the_demonstration_cannot_sell_real_seats() {
    let server = Server::start(TICKETS, &[], None);
    let ask = |path: &str| Client::new().post(format!("{}{path}", server.url));
    let seat = |hall: &str| ask(&format!("/events/{hall}/seats/1")).header("buyer", "Eve");
    for (request, status) in [
        (ask("/rushes/with-lock"), StatusCode::BAD_REQUEST), // does not say who asks
        (ask("/rushes/polka"), StatusCode::NOT_FOUND),
        (seat(WITH_LOCK), StatusCode::NOT_FOUND),
        (seat(WITHOUT_LOCK), StatusCode::NOT_FOUND),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{}", response.url());
    }
    let get = reqwest::get(format!("{}/rushes/with-lock", server.url)).await;
    assert_eq!(get.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
}

/// Sends twenty buyers, with the lock or without.
async fn send(url: &str, hall: &str) -> Response {
    let request = Client::new().post(format!("{url}/rushes/{hall}"));
    let answer = request.header("buyer", "Eve").send().await;
    answer.expect("an answer")
}

/// Sends them, and returns the outcome and the number of buyers with each answer.
async fn rush(url: &str, hall: &str) -> (Value, BTreeMap<u64, usize>) {
    let response = send(url, hall).await;
    assert_eq!(response.status(), StatusCode::OK);
    let outcome: Value = response.json().await.expect("JSON");
    let buyers = outcome["buyers"].as_array().expect("buyers");
    assert_eq!(buyers.len(), 20, "{outcome}");
    let mut answers = BTreeMap::new();
    for buyer in buyers {
        let status = buyer["status"].as_u64().expect("a status");
        *answers.entry(status).or_default() += 1;
    }
    (outcome, answers)
}
