//! The page of the observatory: embedded nodes with their faults, and real nodes.

use std::time::Duration;

use fantoccini::key::Key;
use redlock_kit::RedisServers;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{
    driver::Driver,
    page::Page,
    support::{Server, eventually},
};

const OBSERVATORY: &str = env!("CARGO_BIN_EXE_observatory");

/// What the page says when too few nodes vote.
const TOO_FEW: &str = "2 of 5 vote, 3 are needed: nobody can get a lock.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_nodes_and_clients_are_shown_with_what_the_lock_does_about_them() {
    let driver = Driver::start().await;
    let server = Server::start(OBSERVATORY, &[], None);
    let page = driver.open(&server.url).await;
    page.shows("#quorum", "5 of 5 vote, 3 are needed.").await;
    page.find("#timeline svg rect.hold").await;
    wait_for_grants(&page).await;

    // One node hangs, and one restarts. One is slow, and one is flushed. The lock goes on.
    press(&page, 0, "hang").await;
    page.shows("#advice", "A lock waits at most 50 ms").await;
    page.find(
        "#nodes > li:nth-child(1):not([data-state=voting]) [data-act=hang][data-wanted=start]",
    )
    .await;
    press(&page, 2, "restart").await;
    page.shows("#advice", "has no vote until every lock").await;
    page.find("#nodes > li:nth-child(3)[data-state=quarantined]")
        .await;
    wait_for_grants(&page).await;
    press(&page, 1, "slow").await;
    page.find("#nodes > li:nth-child(2)[data-mode=slow]").await;
    press(&page, 4, "flush").await;
    page.shows("#log", "memory:4 was flushed").await;
    wait_for_grants(&page).await;

    // Without a majority nobody gets the lock. The nodes come back, and so does the lock.
    page.find("#nodes > li:nth-child(3)[data-state=voting]")
        .await;
    press(&page, 2, "stop").await;
    page.shows("#advice", "Locks go on").await;
    page.shows("#nodes > li:nth-child(3) [data-act=stop]", "Start")
        .await;
    press(&page, 3, "stop").await;
    page.shows("#advice", "Now too few nodes vote").await;
    page.shows("#quorum", TOO_FEW).await;
    page.shows("#holders", "Nobody holds order:42; ann, ben and cleo wait.")
        .await;
    for (node, act) in [(0, "hang"), (1, "slow"), (2, "stop"), (3, "stop")] {
        press(&page, node, act).await;
    }
    page.shows("#quorum", "5 of 5 vote").await;

    // Three nodes that restart let nobody in. A stop during a restart is the last word.
    restart_three(&page).await;
    page.shows("#quorum", TOO_FEW).await;
    page.shows("#quorum", "5 of 5 vote").await;
    wait_for_grants(&page).await;
    page.shows(
        "#overlaps",
        "No two clients have worked under one key at once.",
    )
    .await;
    press(&page, 0, "restart").await;
    press(&page, 0, "stop").await;
    sleep(Duration::from_secs(1)).await; // longer than a restart
    page.find("#nodes > li:nth-child(1)[data-mode=stopped]")
        .await;

    // A client is added with the keyboard. One that is killed leaves its tokens behind until they expire.
    let script = "document.querySelector('#client [name=key]').value = ''";
    page.browser.execute(script, Vec::new()).await.unwrap();
    type_into(&page, "#client [name=name]", "eve").await;
    type_into(
        &page,
        "#client [name=key]",
        &format!("invoice:7{}", Key::Enter),
    )
    .await;
    page.shows("#holders", "eve holds invoice:7, with 4 of 5 tokens")
        .await;
    page.shows("#log", "eve got invoice:7").await;
    page.click("#clients [aria-label='Remove eve']").await;
    page.find("#clients:not(:has([aria-label='Remove eve']))")
        .await;
    page.shows("#holders", "dan holds report, with ").await;
    page.click("#clients [aria-label='Kill dan']").await;
    page.shows("#advice", "A client that dies releases nothing.")
        .await;
    page.shows("#holders", "Nobody holds report.").await;
    page.click("#clients [aria-label='Start dan']").await;
    page.shows("#holders", "dan holds report, with ").await;
    type_into(&page, "#client [name=name]", &format!("ann{}", Key::Enter)).await;
    page.shows("#refusal", "there is a client ann already")
        .await;

    // On a phone nothing sticks out, and nothing comes from elsewhere.
    page.browser.set_window_size(500, 850).await.unwrap();
    let script = "
        document.body.style.width = '360px';
        const isForeign = (it) => !it.name.startsWith(location.origin);
        const foreign = performance.getEntriesByType('resource').filter(isForeign);
        return [document.documentElement.scrollWidth, foreign.length];";
    let found = page.browser.execute(script, Vec::new()).await.unwrap();
    let [width, foreign] = [0, 1].map(|it| found[it].as_u64().expect("a number"));
    assert!(width <= 500 && foreign == 0, "{width}, {foreign}");
}

/// The control: nodes that vote at once after a restart give the lock away a second time, and the page notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fresh_nodes_that_are_trusted_let_a_second_client_in() {
    let driver = Driver::start().await;
    let server = Server::start(OBSERVATORY, &["--trust-fresh-nodes"], None);
    let page = driver.open(&server.url).await;
    eventually("two clients are at work under one key", async || {
        restart_three(&page).await;
        let overlaps = page.text("#overlaps[data-mood=bad]");
        timeout(Duration::from_secs(1), overlaps).await.ok()
    })
    .await;
}

#[tokio::test]
async fn bad_requests_are_refused_in_words() {
    let server = Server::start(OBSERVATORY, &[], None);
    let client = reqwest::Client::new();
    let act = |act: &str| json!({ "act": act });
    let plan = |tasks: u32, hold_ms: u64| json!({ "key": "k", "tasks": tasks, "hold_ms": hold_ms });
    for (path, body, status, words) in [
        ("nodes/5", act("stop"), 404, "numbered from 0 to 4"),
        ("nodes/0", act("burn"), 422, "unknown variant `burn`"),
        (
            "clients/a%20b",
            plan(1, 1),
            400,
            "is not a name: use 1 to 20 letters",
        ),
        ("clients/eve", plan(0, 1), 422, "1 to 8 tasks"),
        ("clients/eve", plan(1, 60_001), 422, "at most 60 s"),
        ("clients/ann", plan(1, 1), 409, "a client ann already"),
        ("clients/eve/runs", json!(true), 404, "no client eve"),
        ("keys/k", Value::Null, 409, "those of the clients"),
    ] {
        let request = client.put(format!("{}/{path}", server.url)).json(&body);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let problem: Value = answer.json().await.unwrap();
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains(words), "{path}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_nodes_are_only_looked_at() {
    let driver = Driver::start().await;
    let nodes = RedisServers::spawn(3).unwrap();
    let server = Server::start(OBSERVATORY, &["--key", "order:42"], Some(&nodes));
    let page = driver.open(&server.url).await;
    page.shows("#holders", "order:42: free.").await;
    let holder = nodes.builder().client_name("web-3").build().await.unwrap();
    let guard = holder.lock("order:42").await.unwrap();
    page.shows("#holders", "web-3 holds order:42, with 3 of 3 tokens")
        .await;
    page.shows("#nodes", "web-3 9.").await;
    page.find("#timeline svg rect.hold").await;
    drop(guard);
    page.shows("#log", "web-3 does not hold order:42 any more.")
        .await;
    type_into(
        &page,
        "#key [name=key]",
        &format!("invoice:7{}", Key::Enter),
    )
    .await;
    page.shows("#holders", "invoice:7: free.").await;
    assert!(page.texts("#nodes button").await.is_empty());
    let stop = reqwest::Client::new().put(format!("{}/nodes/0", server.url));
    let refused = stop.json(&json!({ "act": "stop" })).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 409);

    // Without the server, nothing is known of the nodes.
    drop(server);
    page.shows("#quorum", "Not known while the connection is lost.")
        .await;
    page.find("#nodes > li[data-state=unheard]").await;
}

/// Waits until the log says twice more that a client got the key.
async fn wait_for_grants(page: &Page) {
    let grants = async || {
        let log = page.texts("#log li").await;
        log.iter().filter(|it| it.contains("got order:42")).count()
    };
    let before = grants().await;
    eventually("the key changes hands twice", async || {
        (grants().await >= before + 2).then_some(())
    })
    .await;
}

/// Does something to a node by its button, with the keyboard.
async fn press(page: &Page, node: usize, act: &str) {
    let button = format!("#nodes > li:nth-child({}) [data-act={act}]", node + 1);
    type_into(page, &button, &Key::Enter.to_string()).await;
}

async fn type_into(page: &Page, selector: &str, keys: &str) {
    page.find(selector).await.send_keys(keys).await.unwrap();
}

/// Restarts three nodes while the lock is held.
async fn restart_three(page: &Page) {
    page.shows("#holders", " holds order:42, with 5 of 5 tokens")
        .await;
    let script = "
        for (const node of [0, 1, 2]) document.querySelectorAll('#nodes [data-act=restart]')[node].click();";
    page.browser.execute(script, Vec::new()).await.unwrap();
}
