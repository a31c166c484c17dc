use fantoccini::{Client, Locator, elements::Element, key::Key};
use serde::Deserialize;

use crate::support::eventually;

/// A page of the box office with its buyer.
pub(crate) struct Page {
    pub(crate) browser: Client,
    pub(crate) name: &'static str,
}

/// A seat, as the page shows it.
#[derive(Debug, Deserialize)]
pub(crate) struct Seat {
    /// The state for the style sheet.
    pub(crate) state: String,
    /// The short text.
    pub(crate) text: String,
    /// The text for screen readers.
    pub(crate) label: String,
}

/// The outcome of a purchase.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Bought,
    SoldTo(String),
}

impl Page {
    /// Opens a page, and waits until it is connected.
    pub(crate) async fn visit(browser: Client, server: &str, name: &'static str) -> Self {
        let page = Self { browser, name };
        page.browser.goto(server).await.expect("the page");
        page.find("#connection[data-state=live]").await;
        page
    }

    /// Opens the page of the first event, and replaces the name that it has made up.
    pub(crate) async fn open(browser: Client, server: &str, name: &'static str) -> Self {
        let page = Self::visit(browser, server, name).await;
        page.find("#me:not(:empty)").await;
        page.click("#rename").await;
        let input = page.find("dialog[open] #name").await;
        input.clear().await.unwrap();
        input.send_keys(name).await.unwrap();
        page.click("dialog[open] button").await;
        page.find("#connection[data-state=live]").await;
        page
    }

    /// Clicks on an element that exists.
    pub(crate) async fn click(&self, selector: &str) {
        self.find(selector).await.click().await.unwrap();
    }

    /// Types keys, beginning at the first seat.
    pub(crate) async fn keys(&self, keys: &[Key]) {
        let mut selector = "#seats [tabindex='0']";
        for key in keys {
            self.find(selector).await.send_keys(key).await.unwrap();
            selector = ":focus";
        }
    }

    /// Presses a seat.
    pub(crate) async fn press(&self, seat: usize) {
        let button = self.find(&format!("[data-seat='{seat}']")).await;
        button.click().await.unwrap();
    }

    /// Returns a seat as the page shows it at one moment.
    pub(crate) async fn seat(&self, seat: usize) -> Seat {
        // A page that was loaded just now has no seats yet.
        self.find(&format!("[data-seat='{seat}']")).await;
        let script = "
            const button = document.querySelector(`[data-seat='${arguments[0]}']`);
            return {
                state: button.dataset.state, label: button.ariaLabel,
                text: button.querySelector('.state').textContent,
            };";
        let shown = self.browser.execute(script, vec![seat.into()]).await;
        serde_json::from_value(shown.unwrap()).expect("a seat")
    }

    /// Waits until the page shows the seat in this state.
    pub(crate) async fn until(&self, seat: usize, state: &str) -> Seat {
        let what = format!("{} sees seat {seat} in state {state}", self.name);
        eventually(&what, async || {
            let shown = self.seat(seat).await;
            (shown.state == state).then_some(shown)
        })
        .await
    }

    /// Waits until the page has got an answer about the seat.
    pub(crate) async fn outcome(&self, seat: usize) -> Outcome {
        let bought = format!("Seat {seat} is yours.");
        let sold = format!("Seat {seat} was sold to ");
        eventually(&format!("an answer about seat {seat}"), async || {
            self.log().await.iter().find_map(|line| {
                let to = || line.strip_prefix(&sold)?.strip_suffix(" while you waited.");
                if *line == bought {
                    Some(Outcome::Bought)
                } else {
                    Some(Outcome::SoldTo(to()?.to_owned()))
                }
            })
        })
        .await
    }

    /// Waits until the page shows this notice.
    pub(crate) async fn says(&self, words: &str) {
        eventually(&format!("`{words}` in {}'s log", self.name), async || {
            let log = self.log().await;
            log.iter().any(|line| line.starts_with(words)).then_some(())
        })
        .await;
    }

    /// Returns the log of the page, without the times.
    async fn log(&self) -> Vec<String> {
        let script = "
            return [...document.querySelectorAll('#log li')].map((line) => line.lastChild.textContent);";
        let log = self.browser.execute(script, Vec::new()).await;
        serde_json::from_value(log.unwrap()).expect("lines")
    }

    /// Waits until such an element exists.
    pub(crate) async fn find(&self, selector: &str) -> Element {
        eventually(selector, async || {
            self.browser.find(Locator::Css(selector)).await.ok()
        })
        .await
    }

    /// Returns the text of an element.
    pub(crate) async fn text(&self, selector: &str) -> String {
        self.find(selector).await.text().await.unwrap()
    }

    /// Waits until the text of an element contains this text.
    pub(crate) async fn shows(&self, selector: &str, words: &str) {
        eventually(&format!("`{words}` in {selector}"), async || {
            let texts = self.texts(selector).await;
            texts.iter().any(|it| it.contains(words)).then_some(())
        })
        .await;
    }

    /// Returns the texts of these elements at one moment.
    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "
            return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent);";
        let texts = self.browser.execute(script, vec![selector.into()]).await;
        serde_json::from_value(texts.unwrap()).expect("texts")
    }
}
