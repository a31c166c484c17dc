use fantoccini::{Client, Locator, elements::Element};

use crate::support::eventually;

/// A page in a browser.
pub(crate) struct Page {
    pub(crate) browser: Client,
}

impl Page {
    /// Opens the page of a server, and waits until it is connected.
    pub(crate) async fn open(browser: Client, server: &str) -> Self {
        browser.goto(server).await.expect("the page");
        let page = Self { browser };
        page.find("#connection[data-state=live]").await;
        page
    }

    /// Waits until such an element exists.
    pub(crate) async fn find(&self, selector: &str) -> Element {
        eventually(selector, async || {
            self.browser.find(Locator::Css(selector)).await.ok()
        })
        .await
    }

    /// Returns whether such an element exists.
    pub(crate) async fn has(&self, selector: &str) -> bool {
        self.browser.find(Locator::Css(selector)).await.is_ok()
    }

    /// Clicks on an element that exists.
    pub(crate) async fn click(&self, selector: &str) {
        self.find(selector).await.click().await.unwrap();
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
