//! The sales of the box office, in two server processes over five lock nodes and a store.

use std::process::Command;

use futures::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    Server,
    box_office::{Fleet, buy, buying, give_back, state},
    eventually,
    live::Live,
};

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");
const SEATS: usize = 40;
const BUYERS: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_seat_is_sold_once_and_without_the_lock_more_than_once() {
    for has_lock in [true, false] {
        let arguments = ["--payment", "2ms", "--no-lock"];
        let fleet = Fleet::start(TICKETS, &arguments[..if has_lock { 2 } else { 3 }]);
        let (sold, state) = sell_all([fleet.url(0), fleet.url(1)]).await;
        let tickets: usize = sold.iter().sum();
        if has_lock {
            assert_eq!(sold, [1; SEATS]);
        } else {
            assert!(tickets > SEATS, "{tickets} tickets for {SEATS} seats");
        }
        // The service itself counts the repeated sales.
        assert_eq!(state["sold_twice"], tickets - SEATS, "{state}");
        assert_eq!(state["taken"].as_object().unwrap().len(), SEATS, "{state}");
    }
}

#[tokio::test]
async fn a_seat_is_given_back_by_its_owner_only_and_shown_as_free() {
    let fleet = Fleet::start(TICKETS, &["--payment", "0ms"]);
    let [here, there] = [fleet.url(0), fleet.url(1)];
    let mut pages = [Live::open(here).await, Live::open(there).await];
    let bought = buy(here, 7, "Ada").await;
    assert_eq!(bought.status(), StatusCode::CREATED);
    for page in &mut pages {
        page.shows_owner(7, Some("Ada")).await;
    }

    // A repeated request gets the same answer.
    let again = buy(there, 7, "Ada").await;
    assert_eq!(again.status(), StatusCode::OK);
    let ticket: Value = again.json().await.unwrap();
    let hers = json!({ "event": "rock", "seat": 7, "owner": "Ada" });
    assert_eq!(ticket, hers);

    let sold = buy(there, 7, "Bob").await;
    assert_eq!(sold.status(), StatusCode::CONFLICT);
    let problem: Value = sold.json().await.unwrap();
    assert_eq!(problem["owner"], "Ada");
    let not_his = give_back(there, 7, "Bob").await;
    assert_eq!(not_his.status(), StatusCode::FORBIDDEN);

    let given_back = give_back(there, 7, "Ada").await;
    assert_eq!(given_back.status(), StatusCode::NO_CONTENT);
    for page in &mut pages {
        page.shows_owner(7, None).await;
    }
    let free = give_back(here, 7, "Ada").await;
    assert_eq!(free.status(), StatusCode::CONFLICT);
    let bought = buy(here, 7, "Bob").await;
    assert_eq!(bought.status(), StatusCode::CREATED);
    let state = state(there).await;
    assert_eq!(state["taken"]["7"]["owner"], "Bob");
    assert_eq!(state["sold_twice"], 0);
}

#[tokio::test]
async fn errors_describe_what_is_wrong_with_a_request() {
    let server = Server::start(TICKETS, &["--payment", "0ms"], None);
    let too_long = "x".repeat(41);
    let long = "%c3%ab".repeat(40); // 40 characters, if they are counted
    let rows = [
        ("rock/seats/0", "Ada", 404, "no-seat"),
        ("rock/seats/41", "Ada", 404, "no-seat"),
        ("rock/seats/-1", "Ada", 404, "no-seat"),
        ("rock/seats/07", "Ada", 404, "no-seat"), // would have a lock of its own
        ("rock/seats/+7", "Ada", 404, "no-seat"),
        ("rock/seats/99999999999999999999", "Ada", 404, "no-seat"),
        ("rock/seats/seven", "Ada", 404, "no-seat"),
        ("rock/seats/%ff", "Ada", 404, "no-event"),
        ("polka/seats/7", "Ada", 404, "no-event"),
        ("rock/seats/7", "", 400, "no-name"),
        ("rock/seats/7", "%20", 400, "no-name"),
        ("rock/seats/7", "%ff", 400, "no-name"),
        ("rock/seats/7", "Ada%00", 400, "no-name"),
        ("rock/seats/7", "%e2%80%8b", 400, "no-name"), // a space of no width
        ("rock/seats/7", "Ada%e2%80%ae", 400, "no-name"), // turns what follows around
        ("rock/seats/7", &too_long, 400, "long-name"),
        ("rock/seats/7", &long, 201, ""),
        ("rock/seats/%38", "Ada", 201, ""), // an 8
    ];
    for (path, buyer, status, problem) in rows {
        let request = Client::new().post(format!("{}/events/{path}", server.url));
        let response = request.header("buyer", buyer).send().await.unwrap();
        assert_eq!(response.status(), status, "{path} {buyer}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let policy = response.headers()["content-security-policy"].to_str();
        assert!(policy.unwrap().starts_with("default-src 'none'"));
        let body: Value = response.json().await.unwrap();
        if !problem.is_empty() {
            let kind = format!("urn:tickets:problem:{problem}");
            assert_eq!(body["type"], kind, "{path} {buyer}");
            assert_eq!(body["status"], status);
        }
    }
    let nameless = Client::new().post(format!("{}/events/rock/seats/7", server.url));
    assert_eq!(nameless.send().await.unwrap().status(), 400);
    for (path, status) in [
        ("rock/seats/7", 405),
        ("polka", 404),
        ("polka/seats", 404),
        ("polka/live", 404),
    ] {
        let response = reqwest::get(format!("{}/events/{path}", server.url)).await;
        assert_eq!(response.unwrap().status(), status, "{path}");
    }
}

#[tokio::test]
async fn each_seat_of_each_event_has_a_queue_of_its_own() {
    let server = Server::start(TICKETS, &["--payment", "1000s", "--wait", "100ms"], None);
    let mut live = Live::open(&server.url).await;
    let mut buyers = JoinSet::new();
    for (event, seat, buyer) in [("rock", 7, "Ada"), ("rock", 8, "Bob"), ("jazz", 7, "Eve")] {
        let url = format!("{}/events/{event}/seats/{seat}", server.url);
        buyers.spawn(Client::new().post(url).header("buyer", buyer).send());
    }
    live.shows("that two pay", |state| {
        let pays = |seat: &str| &state["taken"][seat]["paying"];
        *pays("7") == json!(["Ada"]) && *pays("8") == json!(["Bob"])
    })
    .await;
    eventually("that Eve pays for a seat of the other event", async || {
        let state = reqwest::get(format!("{}/events/jazz/seats", server.url)).await;
        let state: Value = state.unwrap().json().await.unwrap();
        (state["taken"]["7"]["paying"] == json!(["Eve"])).then_some(())
    })
    .await;
    // To give a seat back changes the seat, too, so it waits for the same lock.
    let refused = give_back(&server.url, 7, "Bob").await;
    assert_eq!(refused.status(), StatusCode::LOCKED);
}

/// The lock is lost during a payment, since most of its nodes are gone.
#[tokio::test]
async fn a_sale_whose_lock_is_lost_is_not_written() {
    let fleet = Fleet::start(TICKETS, &["--payment", "12s"]);
    let ada = buying(fleet.url(0), "Ada");
    let mut live = Live::open(fleet.url(1)).await;
    live.shows_line(7, &["Ada"], &[]).await;
    (0..3).for_each(|node| fleet.nodes.get(node).kill());
    let lost = ada.await.unwrap();
    assert_eq!(lost.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let problem: Value = lost.json().await.unwrap();
    assert_eq!(problem["type"], "urn:redlock:problem:lost");
    assert_eq!(problem["handler_ran"], true);
    let seat = &state(fleet.url(1)).await["taken"]["7"];
    assert_eq!(seat["owner"], Value::Null, "{seat}");
}

#[test]
fn errors_name_bad_options() {
    const NO_URL: &str = "--data is not a Redis URL";
    for (option, value, complaint) in [
        ("--data", "nonsense", NO_URL),
        ("--data", "http://:hunter2@store", NO_URL),
        ("--events", "rock,Rock'n'Roll", "an event's name is"),
        ("--events", "rock,rock", "listed twice"),
        ("--seats", "0", "not in 1..=2000"),
        ("--payment", "5", "the unit is one of"),
    ] {
        let mut tickets = Command::new(TICKETS);
        tickets.args(["--port", "0", option, value]);
        let output = tickets.env_remove("REDLOCK_NODES").output().unwrap();
        assert!(!output.status.success());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(complaint), "{errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
}

/// Lets all buyers want one seat after the other at the same time, by turns through both servers. Returns how many got
/// a ticket for each seat, and the state afterwards.
async fn sell_all(servers: [&str; 2]) -> (Vec<usize>, Value) {
    let names: Vec<_> = (0..BUYERS).map(|buyer| buyer.to_string()).collect();
    let mut sold = Vec::new();
    for seat in 1..=SEATS {
        let buyers = names.iter().zip(servers.into_iter().cycle());
        let answers = join_all(buyers.map(|(name, url)| buy(url, seat, name))).await;
        let statuses = answers.iter().map(|it| it.status());
        let (tickets, others): (Vec<_>, Vec<_>) = statuses.partition(|it| it.is_success());
        assert!(others.iter().all(|it| *it == StatusCode::CONFLICT));
        sold.push(tickets.len());
    }
    (sold, state(servers[0]).await)
}
