//! The page of the box office in real browsers: people who want the same seat at the same time, at
//! different server processes.
//!
//! Needs `chromium` and `chromedriver`, which `make browser` installs; the environment variables
//! `CHROMIUM` and `CHROMEDRIVER` name others.

mod driver;
mod page;
#[path = "../support/mod.rs"]
mod support;

use driver::Driver;
use futures::future::join;
use page::{Outcome, Page};
use redlock_tokio::test_util::Proxy;
use support::{Server, box_office::Fleet, eventually};
use tokio::sync::Mutex;

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");

/// Browsers are heavy: one test has them at a time.
static BROWSERS: Mutex<()> = Mutex::const_new(());

/// Has two people press a seat at the same moment, and returns what their pages tell them.
async fn race(people: [&Page; 2], seat: usize) -> [Outcome; 2] {
    let [one, other] = people;
    join(one.press(seat), other.press(seat)).await;
    join(one.outcome(seat), other.outcome(seat)).await.into()
}

/// Two people at different server processes, and somebody who looks on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_people_one_gets_the_seat() {
    let _browsers = BROWSERS.lock().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "1500ms"]);
    let driver = Driver::start();
    let ada = Page::open(driver.browser().await, fleet.url(0), "Ada").await;
    let bob = Page::open(driver.browser().await, fleet.url(1), "Bob").await;
    let eve = Page::open(driver.browser().await, fleet.url(1), "Eve").await;

    for seat in 1..=5 {
        let looking_on = eventually("that one pays and one waits", async || {
            let shown = eve.seat(seat).await;
            let lines = [("Ada", "Bob"), ("Bob", "Ada")].into_iter();
            lines.into_iter().find(|(pays, waits)| {
                shown.text == format!("{pays} pays") && shown.line == format!("1 in line: {waits}")
            })
        });
        let (outcomes, (paid, waited)) = join(race([&ada, &bob], seat), looking_on).await;

        let (winner, loser) = if paid == "Ada" {
            (&ada, &bob)
        } else {
            (&bob, &ada)
        };
        let lost = Outcome::SoldTo(paid.to_owned());
        let expected = if paid == "Ada" {
            [Outcome::Bought, lost]
        } else {
            [lost, Outcome::Bought]
        };
        assert_eq!(outcomes, expected, "{paid} paid, and {waited} waited");
        let yours = winner.until(seat, "yours").await;
        assert_eq!(yours.text, "yours");
        for page in [loser, &eve] {
            let sold = page.until(seat, "sold").await;
            assert_eq!(sold.text, format!("sold to {paid}"));
            assert_eq!(sold.label, format!("Seat {seat}, sold to {paid}."));
        }
    }
}

/// The check above finds it if a seat is sold twice, and the page says so too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_both_get_the_seat() {
    let _browsers = BROWSERS.lock().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "1500ms", "--no-lock"]);
    let driver = Driver::start();
    let ada = Page::open(driver.browser().await, fleet.url(0), "Ada").await;
    let bob = Page::open(driver.browser().await, fleet.url(1), "Bob").await;

    let outcomes = race([&ada, &bob], 7).await;
    assert_eq!(outcomes, [Outcome::Bought, Outcome::Bought]);
    for page in [&ada, &bob] {
        page.find("[data-seat='7'][data-twice=true]").await;
        let warning = page.text("#warning:not([hidden])").await;
        assert!(warning.contains("without a lock"), "{warning}");
        assert!(warning.contains("was sold again, 1 time."), "{warning}");
    }
}

/// One process, nothing to install but the browser.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_are_two_people() {
    let _browsers = BROWSERS.lock().await;
    let nodes = None;
    let server = Server::start(TICKETS, &["--payment", "100ms"], nodes);
    let driver = Driver::start();
    let ada = Page::open(driver.browser().await, &server.url, "Ada").await;
    ada.press(7).await;
    assert_eq!(ada.outcome(7).await, Outcome::Bought);
    ada.until(7, "yours").await;

    // A name is no markup.
    let tab = ada.browser.new_window(true).await.unwrap();
    ada.browser.switch_to_window(tab.handle).await.unwrap();
    let mallory = "<img src=x onerror=alert(1)>";
    let tab = Page::open(ada.browser.clone(), &server.url, mallory).await;
    assert_eq!(tab.until(7, "sold").await.text, "sold to Ada");
    tab.press(8).await;
    assert_eq!(tab.outcome(8).await, Outcome::Bought);
    tab.until(8, "yours").await;

    // Back in the first tab, where Ada is still Ada.
    let windows = ada.browser.windows().await.unwrap();
    ada.browser
        .switch_to_window(windows[0].clone())
        .await
        .unwrap();
    assert_eq!(
        ada.until(8, "sold").await.text,
        format!("sold to {mallory}")
    );
    assert_eq!(ada.text("#me").await, "Ada");
    ada.press(7).await;
    ada.says("You gave seat 7 back.").await;
    assert_eq!(
        ada.until(7, "free").await.label,
        "Seat 7, free. Press to buy it."
    );

    // With pages open it stops all the same, and they say so.
    let (status, _) = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(status.success(), "{status}");
    ada.find("#connection[data-state=lost]").await;
}

/// What goes wrong is said in words, and passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn troubles_are_shown() {
    let _browsers = BROWSERS.lock().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "10s", "--wait", "3s"]);
    let address = fleet.url(1).strip_prefix("http://").unwrap();
    let proxy = Proxy::spawn(address).unwrap();
    let url = format!("http://{}", proxy.address());
    let driver = Driver::start();
    let ada = Page::open(driver.browser().await, fleet.url(0), "Ada").await;
    let bob = Page::open(driver.browser().await, &url, "Bob").await;

    // Somebody else pays for longer than he may wait.
    ada.press(1).await;
    bob.until(1, "paying").await;
    bob.press(1).await;
    bob.says("You waited long enough for seat 1: the line did not move. Try again in")
        .await;

    // He does not want to wait.
    ada.press(2).await;
    bob.until(2, "paying").await;
    bob.press(2).await;
    bob.until(2, "you-wait").await;
    bob.press(2).await;
    bob.says("You left the line for seat 2.").await;

    // The server cannot be reached.
    proxy.refuse();
    proxy.reset();
    bob.find("#connection[data-state=lost]").await;
    bob.press(3).await;
    bob.says("No answer about seat 3").await;
    proxy.heal();
    bob.find("#connection[data-state=live]").await;

    // The store is away.
    fleet.data.get(0).kill();
    bob.find("#warning:not([hidden])").await;
    let warning = bob.text("#warning").await;
    assert!(warning.contains("The store does not answer"), "{warning}");
    bob.press(4).await;
    bob.says("The store does not answer; seat 4").await;
    fleet.data.get(0).restart().unwrap();
    bob.find("#warning[hidden]").await;

    // No lock is to be had.
    (0..3).for_each(|node| fleet.nodes.get(node).kill());
    bob.press(5).await;
    bob.says("No lock is to be had for seat 5").await;
}
