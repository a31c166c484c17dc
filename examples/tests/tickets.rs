//! Sells a hundred seats through two server processes, five lock nodes and a store.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redlock_tokio::test_util::RedisServers;
use reqwest::StatusCode;
use tokio::task::JoinSet;

const SEATS: usize = 100;
const BUYERS: usize = 32;
const PURCHASES: usize = 200;

/// A `tickets` process, killed when dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(nodes: Option<&RedisServers>, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickets"));
        command.args(["--port", "0"]).args(arguments);
        match nodes {
            Some(nodes) => command
                .env("REDLOCK_TRUST_FRESH_NODES", "1")
                .env("REDLOCK_NODES", nodes.urls().join(",")),
            None => command.env_remove("REDLOCK_NODES"),
        };
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = process.stdout.take().expect("piped");
        let url = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .expect("it says where it listens");
        Self { process, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What 32 buyers who want 200 tickets between them get: how often each seat was sold.
async fn sell(servers: &[Server]) -> HashMap<u64, usize> {
    let client = reqwest::Client::new();
    let wanted = Arc::new(AtomicUsize::new(PURCHASES));
    let mut buyers = JoinSet::new();
    for buyer in 0..BUYERS {
        let server = &servers[buyer % servers.len()];
        let url = format!("{}/events/rock/tickets", server.url);
        let (client, wanted) = (client.clone(), Arc::clone(&wanted));
        buyers.spawn(async move {
            let mut seats = Vec::new();
            while wanted
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok()
            {
                seats.extend(buy(&client, &url).await);
            }
            seats
        });
    }
    let mut sold = HashMap::new();
    for seat in buyers.join_all().await.into_iter().flatten() {
        *sold.entry(seat).or_default() += 1;
    }
    sold
}

/// Buys a ticket, coming back as long as the counter is busy. `None` if the event is sold out.
async fn buy(client: &reqwest::Client, url: &str) -> Option<u64> {
    loop {
        let response = client.post(url).send().await.expect("an answer");
        match response.status() {
            StatusCode::CREATED => {
                let ticket: serde_json::Value = response.json().await.unwrap();
                return ticket["seat"].as_u64();
            }
            StatusCode::CONFLICT => return None,
            StatusCode::LOCKED => tokio::time::sleep(Duration::from_millis(50)).await,
            status => panic!("{status}: {}", response.text().await.unwrap()),
        }
    }
}

async fn sell_through_two_processes(arguments: &[&str]) -> HashMap<u64, usize> {
    let nodes = RedisServers::spawn(5).unwrap();
    let data = RedisServers::spawn(1).unwrap();
    let data = data.get(0).url();
    let arguments = [&["--data", &data], arguments].concat();
    let servers = [(); 2].map(|()| Server::start(Some(&nodes), &arguments));
    sell(&servers).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_sell_each_seat_once() {
    let sold = sell_through_two_processes(&[]).await;
    assert_eq!(sold.len(), SEATS, "all seats were sold");
    assert!(
        sold.values().all(|&times| times == 1),
        "none twice: {sold:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_they_oversell() {
    let sold = sell_through_two_processes(&["--no-lock"]).await;
    let tickets: usize = sold.values().sum();
    assert!(tickets > SEATS, "{tickets} tickets for {SEATS} seats");
    assert!(
        sold.values().any(|&times| times > 1),
        "a seat was sold twice"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_needs_no_redis() {
    let servers = [Server::start(None, &[])];
    let sold = sell(&servers).await;
    assert_eq!(sold.len(), SEATS);
    assert!(sold.values().all(|&times| times == 1));
    let left: serde_json::Value = reqwest::get(format!("{}/events/rock", servers[0].url))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(left["seats_left"], 0);
}

#[tokio::test]
async fn a_store_that_is_no_redis_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_tickets"))
        .args(["--port", "0", "--data", "nonsense"])
        .env_remove("REDLOCK_NODES")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("--data is not a Redis URL"), "{errors}");
}
