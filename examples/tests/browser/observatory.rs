//! The page of the observatory: embedded nodes with their faults, and real nodes.

use fantoccini::{Locator, key::Key};
use redlock_kit::RedisServers;
use serde_json::{Value, json};

use crate::{
    Browsers,
    page::Page,
    support::{Server, eventually},
};

const OBSERVATORY: &str = env!("CARGO_BIN_EXE_observatory");

/// What the page says when too few nodes vote.
const TOO_FEW: &str = "2 of 5 vote, 3 are needed: nobody can get a lock.";

/// What the page says while no two clients overlap.
const NO_OVERLAP: &str = "No two clients have worked under one key at once.";

/// How often a client has got the key, as the log says.
async fn grants(page: &Page) -> usize {
    let log = page.texts("#log li").await;
    log.iter().filter(|it| it.contains("got order:42")).count()
}

async fn open(browsers: &Browsers, server: &Server) -> Page {
    Page::visit(browsers.driver.browser().await, &server.url, "the observer").await
}

/// Does something to a node by its button, with the keyboard.
async fn press(page: &Page, node: usize, act: &str) {
    let button = format!("#nodes > li:nth-child({}) [data-act={act}]", node + 1);
    let button = page.find(&button).await;
    button.send_keys(&Key::Enter).await.unwrap();
}

async fn wait_for_grants(page: &Page) {
    let before = grants(page).await;
    eventually("the key changes hands twice", async || {
        (grants(page).await >= before + 2).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_nodes_are_shown_with_what_the_lock_does_about_them() {
    let browsers = Browsers::start().await;
    let server = Server::start(OBSERVATORY, &[], None);
    let page = open(&browsers, &server).await;
    page.shows("#quorum", "5 of 5 vote, 3 are needed.").await;
    page.shows("#holders", " holds order:42, with 5 of 5 tokens")
        .await;
    page.find("#timeline svg rect.hold").await;
    wait_for_grants(&page).await;

    // One node hangs, and one restarts. The lock goes on without them.
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

    // A slow node votes late, and a flushed one votes on.
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
    wait_for_grants(&page).await;
    page.shows("#overlaps", NO_OVERLAP).await;
}

/// Restarts three nodes while the lock is held.
async fn restart_three(page: &Page) {
    page.shows("#holders", " holds order:42, with 5 of 5 tokens")
        .await;
    let script = "
        for (const node of [0, 1, 2]) document.querySelectorAll('#nodes [data-act=restart]')[node].click();";
    page.browser.execute(script, Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_restart_let_nobody_in() {
    let browsers = Browsers::start().await;
    let server = Server::start(OBSERVATORY, &[], None);
    let page = open(&browsers, &server).await;
    restart_three(&page).await;
    page.shows("#quorum", TOO_FEW).await;
    page.shows("#quorum", "5 of 5 vote").await;
    wait_for_grants(&page).await;
    page.shows("#overlaps", NO_OVERLAP).await;

    // A stop during a restart is the last word.
    press(&page, 0, "restart").await;
    press(&page, 0, "stop").await;
    page.find("#nodes > li:nth-child(1)[data-mode=stopped]")
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await; // longer than a restart
    page.find("#nodes > li:nth-child(1)[data-mode=stopped]")
        .await;
}

/// The control: nodes that vote at once after a restart give the lock away a second time, and the page notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fresh_nodes_that_are_trusted_let_a_second_client_in() {
    let browsers = Browsers::start().await;
    let server = Server::start(OBSERVATORY, &["--trust-fresh-nodes"], None);
    let page = open(&browsers, &server).await;
    eventually("two clients are at work under one key", async || {
        restart_three(&page).await;
        let overlaps = page.text("#overlaps[data-mood=bad]");
        let seen = tokio::time::timeout(std::time::Duration::from_secs(1), overlaps).await;
        seen.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_come_and_die() {
    let browsers = Browsers::start().await;
    let server = Server::start(OBSERVATORY, &[], None);
    let page = open(&browsers, &server).await;

    // With the keyboard alone.
    let name = page.find("#client [name=name]").await;
    let script = "document.querySelector('#client [name=key]').value = ''";
    page.browser.execute(script, Vec::new()).await.unwrap();
    name.send_keys("eve").await.unwrap();
    let key = page.find("#client [name=key]").await;
    let enter = Key::Enter.to_string();
    key.send_keys(&format!("invoice:7{enter}")).await.unwrap();
    page.shows("#clients", "eve").await;
    page.shows("#holders", "eve holds invoice:7, with 5 of 5 tokens")
        .await;
    page.shows("#log", "eve got invoice:7").await;

    // A client that was killed leaves its tokens behind, and the others wait until they expire.
    page.shows("#holders", "dan holds report, with 5 of 5 tokens")
        .await;
    page.click("#clients [aria-label='Kill dan']").await;
    page.shows("#advice", "A client that dies releases nothing.")
        .await;
    page.shows("#clients", "is dead").await;
    page.find("#clients [aria-label='Start dan']").await;
    page.shows("#holders", "Nobody holds report.").await;
    page.click("#clients [aria-label='Start dan']").await;
    page.shows("#holders", "dan holds report, with 5 of 5 tokens")
        .await;

    page.click("#clients [aria-label='Remove eve']").await;
    eventually("eve is gone", async || {
        let clients = page.texts("#clients li").await;
        clients.iter().all(|it| !it.contains("eve")).then_some(())
    })
    .await;

    // What cannot be done is refused in words.
    let name = page.find("#client [name=name]").await;
    name.send_keys(&format!("ann{enter}")).await.unwrap();
    page.shows("#refusal", "there is a client ann already")
        .await;

    // On a phone nothing sticks out, and nothing comes from elsewhere.
    page.browser.set_window_size(500, 850).await.unwrap();
    let script = "
        document.body.style.width = '360px';
        return [
            document.documentElement.scrollWidth,
            performance.getEntriesByType('resource').filter((it) => !it.name.startsWith(location.origin)).length,
        ];";
    let [width, foreign] = {
        let found = page.browser.execute(script, Vec::new()).await.unwrap();
        [0, 1].map(|it| found[it].as_u64().expect("a number"))
    };
    assert!(width <= 500, "{width}");
    assert_eq!(foreign, 0);
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
    let browsers = Browsers::start().await;
    let nodes = RedisServers::spawn(3).unwrap();
    let server = Server::start(OBSERVATORY, &["--key", "order:42"], Some(&nodes));
    let page = open(&browsers, &server).await;
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
    let buttons = page.browser.find_all(Locator::Css("#nodes button")).await;
    assert!(buttons.unwrap().is_empty());

    let keys = format!("invoice:7{}", Key::Enter);
    let key = page.find("#key [name=key]").await;
    key.send_keys(&keys).await.unwrap();
    page.shows("#holders", "invoice:7: free.").await;
    let stop = reqwest::Client::new().put(format!("{}/nodes/0", server.url));
    let refused = stop.json(&json!({ "act": "stop" })).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 409);

    // Without the server, nothing is known of the nodes.
    drop(server);
    page.shows("#quorum", "Not known while the connection is lost.")
        .await;
    page.find("#nodes > li[data-state=unheard]").await;
}
