//! Pages in real browsers, each as its user walks through it: the observatory, and here that of the box office, where
//! two people are at different server processes.
//!
//! Needs `chromium` and `chromedriver`, which `make browser` installs. The environment variables
//! `CHROMIUM` and `CHROMEDRIVER` name others.

mod driver;
mod observatory;
mod page;
#[path = "../support/mod.rs"]
mod support;

use driver::Driver;
use fantoccini::key::Key;
use futures::future::join;
use page::Page;
use redlock_kit::Proxy;
use support::{box_office::Fleet, eventually};

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");

/// This name is no markup.
const BOB: &str = "<img src=x onerror=alert(1)>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_people_buy_seats_watch_the_rush_and_are_told_of_each_failure() {
    let driver = Driver::start().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "5s", "--wait", "8s"]);
    let proxy = Proxy::spawn(fleet.url(1).strip_prefix("http://").unwrap()).unwrap();
    let ada = driver.open(fleet.url(0)).await;
    let bob = driver.open(&format!("http://{}", proxy.address())).await;

    // A new page can be used at once: the buyer has a name, and no dialog is in the way.
    ada.find("#me:not(:empty)").await;
    ada.find("body:not(:has(dialog[open]))").await;
    rename(&ada, "Ada").await;
    rename(&bob, BOB).await;
    for (width, height) in [(500, 844), (1280, 720)] {
        ada.browser.set_window_size(width, height).await.unwrap();
        eventually(&format!("all seats in {width} x {height}"), async || {
            let script = "
                const last = document.querySelector('#seats').lastChild.getBoundingClientRect();
                return last.bottom <= innerHeight && document.documentElement.scrollWidth <= innerWidth;";
            let fits = ada.browser.execute(script, Vec::new()).await.unwrap();
            (fits == true).then_some(())
        })
        .await;
    }

    // Of two people who press a seat at the same moment, one gets it.
    join(press(&ada, 1), press(&bob, 1)).await;
    let (winner, its, loser) = eventually("one has the seat", async || {
        let is_adas = ada.has("[data-seat='1'][data-state=yours]").await;
        let is_bobs = bob.has("[data-seat='1'][data-state=yours]").await;
        is_adas
            .then_some((&ada, "Ada", &bob))
            .or(is_bobs.then_some((&bob, BOB, &ada)))
    })
    .await;
    winner.shows("#log", "Seat 1 is yours.").await;
    let sold = format!("Seat 1 was sold to {its} while you waited.");
    loser.shows("#log", &sold).await;
    assert_eq!(
        label(loser, 1, "sold").await,
        format!("Seat 1, sold to {its}.")
    );

    // A person who comes later has a place in line, and may leave it.
    press(&ada, 2).await;
    label(&bob, 2, "paying").await;
    press(&bob, 2).await;
    bob.shows("#place", "You are first in line for seat 2: Ada is paying.")
        .await;
    bob.shows("#clock", "You will know in about ").await;
    bob.shows("#lines", "In line: you").await;
    press(&bob, 2).await;
    bob.shows("#log", "You left the line for seat 2.").await;

    // The keyboard is enough. The last seat is reached with the tab key, and the others from there.
    let mut focus = "#seats [tabindex='0']";
    for key in [Key::Down, Key::Right, Key::Enter] {
        ada.find(focus).await.send_keys(&key).await.unwrap();
        focus = ":focus";
    }
    ada.shows("#log", "Seat 13 is yours.").await;
    assert_eq!(ada.texts("#seats [tabindex='0'] .number").await, ["13"]);
    press(&ada, 13).await;
    ada.shows("#log", "You gave seat 13 back.").await;
    assert_eq!(
        label(&ada, 13, "free").await,
        "Seat 13, free. Press to buy it."
    );

    // Twenty buyers want one seat, with the lock and without it.
    ada.click("#with-lock button").await;
    ada.click("#without-lock button").await;
    for (selector, words) in [
        ("#with-lock .headline", "is paying. 19 people wait."),
        (
            "#without-lock .headline",
            "20 people are paying for the same seat.",
        ),
        ("#with-lock .headline", "Sold once, to "),
        ("#with-lock .tally", "\u{d7} 19 were told that it is sold"),
        ("#without-lock .headline", "Sold 20 times! Only "),
        ("#without-lock .tally", "! 19 paid for nothing"),
    ] {
        ada.shows(selector, words).await;
    }
    for (buyers, count) in [
        ("#with-lock .buyers [data-state=owner]", 1),
        ("#with-lock .buyers [data-state=sold]", 19),
        ("#without-lock .buyers [data-state=owner]", 1),
        ("#without-lock .buyers [data-state=robbed]", 19),
    ] {
        assert_eq!(ada.texts(buyers).await.len(), count, "{buyers}");
    }
    // No seat of the real hall was sold, and none twice.
    let totals = ada.text("#totals").await;
    assert!(totals.starts_with("38 of 40 seats are left, "), "{totals}");
    ada.find("#warning[hidden]").await;

    // A page that is opened again shows an earlier outcome as such, and has the same buyer. Another tab has another.
    ada.browser.refresh().await.unwrap();
    ada.shows("#without-lock .headline", "Sold 20 times!").await;
    let explained = ada.texts("#with-lock .tally").await;
    assert_eq!(explained, ["This was before you opened the page."]);
    label(&ada, 2, "yours").await;
    assert_eq!(ada.text("#me").await, "Ada");
    let tab = ada.browser.new_window(true).await.unwrap();
    ada.browser.switch_to_window(tab.handle).await.unwrap();
    let tab = Page::open(ada.browser.clone(), fleet.url(0)).await;
    label(&tab, 2, "sold").await;
    assert_ne!(tab.text("#me").await, "Ada");

    tell_of_failures(&fleet, &proxy, &bob).await;
}

/// The page reports each failure in words, until it is over.
async fn tell_of_failures(fleet: &Fleet, proxy: &Proxy, bob: &Page) {
    // Another client has the lock of the seat for longer than a buyer waits.
    let other = fleet.nodes.builder().build().await.unwrap();
    let guard = other.lock("seat:rock:9").await.unwrap();
    press(bob, 9).await;
    bob.shows(
        "#log",
        "You waited too long for seat 9: the line did not move. Try again in",
    )
    .await;
    drop(guard);

    // The server cannot be reached.
    proxy.refuse();
    proxy.reset();
    bob.find("#connection[data-state=lost]").await;
    bob.shows("#quorum", "Not known while the connection is lost.")
        .await;
    bob.find("#nodes:has([data-state=unheard]):not(:has([data-state=voting]))")
        .await;
    press(bob, 3).await;
    bob.shows("#log", "No answer about seat 3").await;
    proxy.heal();
    bob.find("#connection[data-state=live]").await;
    bob.find("#nodes [data-state=voting]").await;

    // The store is away.
    fleet.data.get(0).kill();
    bob.shows("#warning:not([hidden])", "The store does not answer")
        .await;
    press(bob, 4).await;
    bob.shows("#log", "The store does not answer. Seat 4").await;
    fleet.data.get(0).restart().unwrap();
    bob.find("#warning[hidden]").await;

    // Too few lock nodes are up: the buttons that need a lock are disabled, and the others are not.
    (0..3).for_each(|node| fleet.nodes.get(node).kill());
    let warning = "No lock available: 2 of 5 lock nodes vote, and 3 are needed.";
    bob.shows("#warning", warning).await;
    let lights = bob.texts("#nodes li").await;
    let down = |it: &&String| it.ends_with("no connection");
    assert_eq!(lights.iter().filter(down).count(), 3, "{lights:?}");
    bob.find("#with-lock button[aria-disabled=true]").await;
    bob.find("#without-lock button:not([aria-disabled=true])")
        .await;
    bob.find("[data-seat='6'][aria-disabled=true]").await;
    assert_eq!(label(bob, 6, "free").await, "Seat 6, free.");
    press(bob, 6).await;
    bob.shows("#log", "No lock available for seat 6").await;
    (0..3).for_each(|node| fleet.nodes.get(node).restart().unwrap());
    bob.find("#with-lock button:not([aria-disabled=true])")
        .await;
    bob.find("[data-seat='6']:not([aria-disabled=true])").await;
}

/// The control: without the lock the page shows a seat that is sold twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_both_get_the_seat() {
    let driver = Driver::start().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "1500ms", "--no-lock"]);
    let ada = driver.open(fleet.url(0)).await;
    let bob = driver.open(fleet.url(1)).await;
    join(press(&ada, 7), press(&bob, 7)).await;
    for page in [&ada, &bob] {
        page.shows("#log", "Seat 7 is yours.").await;
        page.find("[data-seat='7'][data-twice=true]").await;
        let warning = page.text("#warning:not([hidden])").await;
        assert!(warning.contains("without a lock"), "{warning}");
        assert!(warning.contains("was sold again, 1 time."), "{warning}");
    }
}

/// Replaces the name that the page has made up.
async fn rename(page: &Page, name: &str) {
    page.click("#rename").await;
    let input = page.find("dialog[open] #name").await;
    input.clear().await.unwrap();
    input.send_keys(name).await.unwrap();
    page.click("dialog[open] button").await;
    page.shows("#me", name).await;
}

async fn press(page: &Page, seat: usize) {
    page.click(&format!("[data-seat='{seat}']")).await;
}

/// Waits until the seat has this state, and returns its text for screen readers.
async fn label(page: &Page, seat: usize, state: &str) -> String {
    let seat = format!("[data-seat='{seat}'][data-state={state}]");
    let label = page.find(&seat).await.attr("aria-label").await;
    label.unwrap().expect("a label")
}
