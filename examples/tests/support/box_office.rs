use redlock_kit::RedisServers;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;
use tokio::{task::JoinHandle, time::timeout};

use super::{SOON, Server};

/// Server processes that sell the same seats.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Server>,
    pub(crate) nodes: RedisServers,
    pub(crate) data: RedisServers,
}

impl Fleet {
    /// Starts two processes of the box office over five lock nodes and a store.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let nodes = RedisServers::spawn(5).expect("five lock nodes");
        let data = RedisServers::spawn(1).expect("a store");
        let url = data.get(0).url();
        let arguments = [&["--data", &url], arguments].concat();
        let start = || Server::start(program, &arguments, Some(&nodes));
        let servers = vec![start(), start()];
        Self {
            servers,
            nodes,
            data,
        }
    }

    pub(crate) fn url(&self, server: usize) -> &str {
        &self.servers[server].url
    }
}

pub(crate) async fn buy(url: &str, seat: usize, buyer: &str) -> Response {
    ask(Method::POST, url, seat, buyer).await
}

/// A client that buys seat 7 in a task. It disconnects when the task is aborted.
pub(crate) fn buying(url: &str, buyer: &'static str) -> JoinHandle<Response> {
    let url = url.to_owned();
    tokio::spawn(async move { buy(&url, 7, buyer).await })
}

pub(crate) async fn give_back(url: &str, seat: usize, buyer: &str) -> Response {
    ask(Method::DELETE, url, seat, buyer).await
}

async fn ask(method: Method, url: &str, seat: usize, buyer: &str) -> Response {
    let request = Client::new()
        .request(method, format!("{url}/events/rock/seats/{seat}"))
        .header("buyer", buyer);
    let answer = timeout(SOON, request.send()).await;
    answer.expect("it does not hang").expect("an answer")
}

/// Asserts that a request was refused with this status, and that the client is told when to retry.
pub(crate) fn assert_refused(response: &Response, status: StatusCode) {
    assert_eq!(response.status(), status);
    assert!(response.headers().contains_key("retry-after"));
}

/// Returns the state of the event.
pub(crate) async fn state(url: &str) -> Value {
    let response = reqwest::get(format!("{url}/events/rock/seats")).await;
    response.unwrap().json().await.expect("JSON")
}
