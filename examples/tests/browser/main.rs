//! Pages in real browsers: the observatory, and here that of the box office, where people want the same seat at the
//! same time, at different server processes.
//!
//! Needs `chromium` and `chromedriver`, which `make browser` installs. The environment variables
//! `CHROMIUM` and `CHROMEDRIVER` name others.

mod driver;
mod observatory;
mod page;
#[path = "../support/mod.rs"]
mod support;

use driver::Driver;
use fantoccini::{Locator, key::Key};
use futures::future::join;
use page::{Outcome, Page};
use redlock_kit::Proxy;
use support::{
    Server,
    box_office::{Fleet, buy},
    eventually,
};
use tokio::{
    sync::{Mutex, MutexGuard},
    task::JoinSet,
};

const TICKETS: &str = env!("CARGO_BIN_EXE_tickets");

/// The browsers of one test. One test at a time runs them, because they are heavy.
struct Browsers {
    driver: Driver,
    _turn: MutexGuard<'static, ()>,
}

impl Browsers {
    async fn start() -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        Self {
            driver: Driver::start(),
            _turn: turn,
        }
    }

    /// Opens the page of a buyer in a browser of its own.
    async fn open(&self, url: &str, name: &'static str) -> Page {
        Page::open(self.driver.browser().await, url, name).await
    }
}

/// Lets two people press a seat at the same moment, and returns the notices on their pages.
async fn race(people: [&Page; 2], seat: usize) -> [Outcome; 2] {
    let [one, other] = people;
    join(one.press(seat), other.press(seat)).await;
    join(one.outcome(seat), other.outcome(seat)).await.into()
}

/// Opens the pages of two people at different server processes, and the page of an onlooker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_people_one_gets_the_seat() {
    let browsers = Browsers::start().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "1500ms"]);
    let ada = browsers.open(fleet.url(0), "Ada").await;
    let bob = browsers.open(fleet.url(1), "Bob").await;
    let eve = browsers.open(fleet.url(1), "Eve").await;

    for seat in 1..=5 {
        let looking_on = eventually("that one pays and one waits", async || {
            let shown = eve.seat(seat).await;
            let lines = [("Ada", "Bob"), ("Bob", "Ada")].into_iter();
            lines.into_iter().find(|(pays, waits)| {
                let label = format!("Seat {seat}, {pays} is paying. 1 in line: {waits}. ");
                shown.label.starts_with(&label)
            })
        });
        let (outcomes, (paid, waited)) = join(race([&ada, &bob], seat), looking_on).await;

        let lost = Outcome::SoldTo(paid.to_owned());
        let (winner, loser, expected) = match paid {
            "Ada" => (&ada, &bob, [Outcome::Bought, lost]),
            _ => (&bob, &ada, [lost, Outcome::Bought]),
        };
        assert_eq!(outcomes, expected, "{paid} paid, and {waited} waited");
        let yours = winner.until(seat, "yours").await;
        assert_eq!(yours.text, "yours");
        for page in [loser, &eve] {
            let sold = page.until(seat, "sold").await;
            assert_eq!(sold.text, paid);
            assert_eq!(sold.label, format!("Seat {seat}, sold to {paid}."));
        }
    }
}

/// The control: the check above notices a seat that is sold twice, and the page shows it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_both_get_the_seat() {
    let browsers = Browsers::start().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "1500ms", "--no-lock"]);
    let ada = browsers.open(fleet.url(0), "Ada").await;
    let bob = browsers.open(fleet.url(1), "Bob").await;

    let outcomes = race([&ada, &bob], 7).await;
    assert_eq!(outcomes, [Outcome::Bought, Outcome::Bought]);
    for page in [&ada, &bob] {
        page.find("[data-seat='7'][data-twice=true]").await;
        let warning = page.text("#warning:not([hidden])").await;
        assert!(warning.contains("without a lock"), "{warning}");
        assert!(warning.contains("was sold again, 1 time."), "{warning}");
    }
}

/// One embedded process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_are_two_people() {
    let browsers = Browsers::start().await;
    let server = Server::start(TICKETS, &["--payment", "100ms"], None);
    let ada = browsers.open(&server.url, "Ada").await;
    ada.press(7).await;
    assert_eq!(ada.outcome(7).await, Outcome::Bought);
    ada.until(7, "yours").await;

    // A name is not taken for markup.
    let tab = ada.browser.new_window(true).await.unwrap();
    ada.browser.switch_to_window(tab.handle).await.unwrap();
    let mallory = "<img src=x onerror=alert(1)>";
    let tab = Page::open(ada.browser.clone(), &server.url, mallory).await;
    assert_eq!(tab.until(7, "sold").await.text, "Ada");
    tab.press(8).await;
    assert_eq!(tab.outcome(8).await, Outcome::Bought);
    tab.until(8, "yours").await;

    // The first tab still belongs to Ada.
    let first = ada.browser.windows().await.unwrap().swap_remove(0);
    ada.browser.switch_to_window(first).await.unwrap();
    assert_eq!(ada.until(8, "sold").await.text, mallory);
    assert_eq!(ada.text("#me").await, "Ada");
    ada.press(7).await;
    ada.says("You gave seat 7 back.").await;
    let free = ada.until(7, "free").await;
    assert_eq!(free.label, "Seat 7, free. Press to buy it.");

    // The server stops although pages are open, and they show it.
    tokio::task::spawn_blocking(|| server.end()).await.unwrap();
    ada.find("#connection[data-state=lost]").await;
    ada.shows("#quorum", "Not known while the connection is lost.")
        .await;
    ada.find("#nodes [data-state=unheard]").await;
    let lit = ada.browser.find(Locator::Css("#nodes [data-state=voting]"));
    assert!(lit.await.is_err(), "a node that nobody hears of");
}

/// The page shows the place in line and the remaining time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_buyer_sees_the_place_in_line_and_the_time() {
    let browsers = Browsers::start().await;
    let server = Server::start(TICKETS, &["--payment", "1000s", "--wait", "1000s"], None);
    let eve = browsers.open(&server.url, "Eve").await;
    let mut others = JoinSet::new();
    let mut joins = async |name: &'static str, shown: &str| {
        let url = server.url.clone();
        others.spawn(async move { buy(&url, 7, name).await });
        eve.shows("#lines", shown).await;
    };
    joins("Ada", "Ada is paying").await;
    joins("Bob", "In line: Bob").await;
    eve.press(7).await;
    let place = "You are second in line for seat 7: Ada is paying.";
    eve.shows("#place", place).await;
    eve.shows("#clock", "You will know in about 99").await;
    eve.shows("#lines", "In line: Bob, you").await;
}

/// The demonstration needs one page and one press of a button.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_button_sends_twenty_buyers() {
    let browsers = Browsers::start().await;
    let server = Server::start(TICKETS, &[], None);
    let eve = browsers.open(&server.url, "Eve").await;
    let lights = eve.texts("#nodes li").await;
    assert_eq!(lights.len(), 5);
    assert!(lights.iter().all(|it| it.ends_with("votes")), "{lights:?}");

    eve.click("#with-lock button").await;
    eve.click("#without-lock button").await;
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
        eve.shows(selector, words).await;
    }
    for (panel, state, count) in [
        ("#with-lock", "owner", 1),
        ("#with-lock", "sold", 19),
        ("#without-lock", "owner", 1),
        ("#without-lock", "robbed", 19),
    ] {
        let selector = format!("{panel} .buyers [data-state={state}]");
        assert_eq!(eve.texts(&selector).await.len(), count, "{selector}");
    }
    // No seat of the real hall was sold.
    let totals = eve.text("#totals").await;
    assert_eq!(totals, "40 of 40 seats are left, 0 are yours.");
    eve.find("#warning[hidden]").await;

    // A page that is opened afterwards shows the outcome, and says that it is an earlier one.
    eve.browser.refresh().await.unwrap();
    eve.shows("#with-lock .headline", "Sold once, to ").await;
    eve.shows("#without-lock .headline", "Sold 20 times!").await;
    for tally in ["#with-lock .tally", "#without-lock .tally"] {
        let explained = eve.texts(tally).await;
        assert_eq!(explained, ["This was before you opened the page."]);
    }
}

/// A new page can be used at once, without a mouse: the buyer has a name, and no dialog is in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_page_asks_nothing_and_the_keyboard_is_enough() {
    let browsers = Browsers::start().await;
    let server = Server::start(TICKETS, &["--payment", "0ms"], None);
    let browser = browsers.driver.browser().await;
    let page = Page::visit(browser, &server.url, "a new buyer").await;
    page.until(1, "free").await;
    assert!(page.texts("dialog[open]").await.is_empty());
    // One seat is reached with the tab key, and the others from there.
    let reached = page.texts("#seats [tabindex='0'] .number").await;
    assert_eq!(reached, ["1"]);
    page.keys(&[Key::Down, Key::Right, Key::Enter]).await;
    page.says("Seat 12 is yours.").await;
    let reached = page.texts("#seats [tabindex='0'] .number").await;
    assert_eq!(reached, ["12"], "the place in the hall is kept");

    let button = page.find("#without-lock button").await;
    button.send_keys(&Key::Enter).await.unwrap();
    page.shows("#without-lock .headline", "Sold 20 times!")
        .await;
    // Screen readers announce changes, and not the passing time.
    for status in ["#notice", "#place", "#quorum", "#without-lock .headline"] {
        page.find(&format!("{status}[role=status]")).await;
    }
    page.find("#warning[role=alert]").await;
    page.find("#clock[aria-hidden=true]").await;

    let name = page.text("#me").await;
    assert!(!name.is_empty());
    page.browser.refresh().await.unwrap();
    page.until(12, "yours").await;
    assert_eq!(page.text("#me").await, name, "it is kept");
}

/// The whole hall is in view, on a laptop and on a phone, and nothing is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_seats_are_in_one_view() {
    let browsers = Browsers::start().await;
    for (seats, screens) in [
        ("40", &[(1280, 720), (1366, 768), (500, 844)][..]),
        ("400", &[(1280, 720), (500, 1000)]),
        ("2000", &[(1280, 720)]),
    ] {
        let server = Server::start(TICKETS, &["--seats", seats], None);
        let page = browsers.open(&server.url, "Eve").await;
        page.until(1, "free").await;
        for &(width, height) in screens {
            page.browser.set_window_size(width, height).await.unwrap();
            let script = "
                const last = document.querySelector('#seats').lastChild.getBoundingClientRect();
                return last.bottom <= innerHeight
                    && document.documentElement.scrollWidth <= innerWidth;";
            let fits = format!("{seats} seats in {width} x {height}");
            eventually(&fits, async || {
                let fits = page.browser.execute(script, Vec::new()).await.unwrap();
                (fits == true).then_some(())
            })
            .await;
        }
        page.browser.close().await.unwrap();
    }
}

/// The page reports each failure in words, until it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_shown() {
    let browsers = Browsers::start().await;
    let fleet = Fleet::start(TICKETS, &["--payment", "10s", "--wait", "3s"]);
    let address = fleet.url(1).strip_prefix("http://").unwrap();
    let proxy = Proxy::spawn(address).unwrap();
    let url = format!("http://{}", proxy.address());
    let ada = browsers.open(fleet.url(0), "Ada").await;
    let bob = browsers.open(&url, "Bob").await;

    // Another buyer pays for longer than Bob may wait.
    ada.press(1).await;
    bob.until(1, "paying").await;
    bob.press(1).await;
    bob.says("You waited too long for seat 1: the line did not move. Try again in")
        .await;

    // Bob leaves the line.
    ada.press(2).await;
    bob.until(2, "paying").await;
    bob.press(2).await;
    bob.shows("#place", "You are first in line for seat 2: Ada is paying.")
        .await;
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
    bob.find("#nodes [data-state=voting]").await;
    bob.click("#without-lock button").await;
    bob.shows("#without-lock .headline", "Sold 20 times!").await;

    // The store is away.
    fleet.data.get(0).kill();
    bob.find("#warning:not([hidden])").await;
    let warning = bob.text("#warning").await;
    assert!(warning.contains("The store does not answer"), "{warning}");
    bob.press(4).await;
    bob.says("The store does not answer. Seat 4").await;
    fleet.data.get(0).restart().unwrap();
    bob.find("#warning[hidden]").await;

    // Too few lock nodes are up.
    (0..3).for_each(|node| fleet.nodes.get(node).kill());
    bob.press(5).await;
    bob.says("No lock available for seat 5").await;
    let warning = "No lock available: 2 of 5 lock nodes vote, and 3 are needed.";
    bob.shows("#warning", warning).await;
    let lights = bob.texts("#nodes li").await;
    let down = |it: &&String| it.ends_with("no connection");
    assert_eq!(lights.iter().filter(down).count(), 3, "{lights:?}");

    // What needs a lock cannot be pressed. What needs none can.
    bob.find("#with-lock button[aria-disabled=true]").await;
    bob.find("#without-lock button:not([aria-disabled=true])")
        .await;
    let seat = "[data-seat='6'][aria-disabled=true]";
    let label = bob.find(seat).await.attr("aria-label").await.unwrap();
    assert_eq!(label.as_deref(), Some("Seat 6, free."));
    bob.click("#with-lock button").await;
    bob.press(6).await;
    bob.says("No lock available for seat 6").await;
    let headline = bob.text("#with-lock .headline").await;
    assert_eq!(headline, "One at a time.");

    (0..3).for_each(|node| fleet.nodes.get(node).restart().unwrap());
    bob.find("#with-lock button:not([aria-disabled=true])")
        .await;
    bob.find("[data-seat='6']:not([aria-disabled=true])").await;
}
